"""The operator's tools: dashboard, metrics, alerts and backups."""
