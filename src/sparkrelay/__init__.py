"""SparkRelay: Kafka Streams' high availability for PySpark pipelines.

Importing this package does not import pyspark: names that need it are loaded when they are first used.
"""

from __future__ import annotations

__version__ = "0.1.0.dev0"
