"""``kprod pipeline``: files, tables and SQL through Spark into Kafka, from the command line."""
