terraform {
  source = "../../code//stacks/app"
}
