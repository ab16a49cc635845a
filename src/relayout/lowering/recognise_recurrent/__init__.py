"""What the rounds of a While compute: rows of a Scan, or the cell of a GRU, LSTM or RNN. Loaded where there is one."""
