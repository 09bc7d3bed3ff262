"""The same splits of the same tables through ncprior and through what people would use instead."""
