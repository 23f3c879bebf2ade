include "root" {
  path = find_in_parent_folders("root.hcl")
}

terraform {
  source = "tfr:///example/x/aws?version=1.0.0"
}

inputs = {
  who = run_cmd("whoami")
}
