terraform { source = "git@git.example.com:modules.git//b" }
