"""The operator's tools: dashboard, metrics and backups."""
