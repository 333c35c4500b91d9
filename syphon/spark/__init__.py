"""The transfer on Spark: sessions, doorbells, jobs, the ledger and what can be asked of it."""
