"""The connection to PostgreSQL: typed calls, pools, listening, migrations. No other folder sends SQL."""
