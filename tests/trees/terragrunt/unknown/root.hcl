locals {
  branch  = run_cmd("git", "rev-parse", "HEAD")
  account = get_aws_account_id()
  harmless = "${local.account}-x"
}
