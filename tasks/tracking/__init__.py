"""Everything that is written to or read from MLflow. No other package imports it.

store     which server, how patient        runs      parent and child runs, their dead ones, their summaries
metrics   curves that survive an outage    records   data sets, tables, figures, the description
registry  versions, aliases, promotion     lineage   raw data hash -> alias, by queries alone
tags      the names of all tags            process   who wrote a run, and whether that process still lives
"""
