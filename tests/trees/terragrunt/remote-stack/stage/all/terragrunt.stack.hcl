stack "all" {
  source = "${get_env("CATALOG")}//stacks/all"
  path   = "all"
}
