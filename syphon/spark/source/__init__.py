"""The data source `servicebus`: reads, writes and streams of Service Bus entities in Spark.

Only `data_source` and the readers and writers need Spark; the modules below them read and make messages, and are also
what `inspect` stands on.
"""
