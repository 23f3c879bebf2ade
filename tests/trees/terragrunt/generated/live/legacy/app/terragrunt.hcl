include {
  path = find_in_parent_folders()
}

terraform {
  source = "tfr:///example/app/aws?version=1.0.0"
}
