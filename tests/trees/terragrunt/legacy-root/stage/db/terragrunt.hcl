include {
  path = find_in_parent_folders()
}

terraform {
  source = "tfr:///example/db/aws?version=1.0.0"
}
