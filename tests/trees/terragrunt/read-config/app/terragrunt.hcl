locals {
  names  = read_terragrunt_config("../shared/names.hcl")
  absent = read_terragrunt_config("../shared/absent.hcl", { locals = { extra = "" } })
  module = local.names.locals.data.modules[local.names.locals.first]
  layers = [for name in ["one", "two"] : yamldecode(file("../layers/${name}.yaml"))]
  env    = try(local.names.locals.nothing, local.names.inputs.tag)
}

terraform {
  source = format("../modules/%s%s", local.module, local.absent.locals.extra)
}

inputs = merge(local.layers...)
