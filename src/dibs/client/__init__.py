"""The client for application code, sync and async: jobs, tasks and the SQS-like queue."""
