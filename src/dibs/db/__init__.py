"""The only folder that speaks to PostgreSQL: typed calls, pools, listening, migrations."""
