include "root" {
  path   = find_in_parent_folders("root.hcl")
  expose = true
}

terraform {
  source = "${get_repo_root()}/modules/${include.root.locals.settings.region == "eu-central-1" ? "near" : "far"}"
}
