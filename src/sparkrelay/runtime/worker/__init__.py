"""What runs inside Spark's Python workers. Imports no pyspark but the task context; errors travel as rows."""
