locals { account_name = "nonprod" }
