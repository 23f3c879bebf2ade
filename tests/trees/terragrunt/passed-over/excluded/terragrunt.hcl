terraform { source = "tfr:///example/x/aws?version=1.0.0" }

exclude {
  if      = length(split("/", get_path_from_repo_root())) == 1
  actions = ["all_except_output"]
}
