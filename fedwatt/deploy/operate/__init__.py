"""What an operator of a real fleet looks at: its page, metrics, alerts and backups."""
