terraform {
  source = "git::https://git.example.com/modules.git//app?ref=v1.2.0"
}

inputs = {
  name = "app"
}
