size = 4
