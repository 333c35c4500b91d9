"""How fast it is, beside what people use today."""
