"""What is asked of Spark's insides: analysed plans read as values, and plans made of others.

All knowledge of Catalyst's classes is here, so that another release of Spark is a matter of this package.
"""
