include "common" {
  path = "../common.hcl"
}

terraform { source = "git@git.example.com:modules.git//c" }

dependencies {
  paths = ["../a", "../missing"]
}
