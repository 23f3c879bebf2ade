include "main" {
  path = "../../_common/main.hcl"
}
