//! Evaluates calls of functions.

use std::rc::Rc;

use hcl_edit::expr::{Expression, FuncCall};

use super::frame::{Eval, Frame};
use super::functions;
use super::value::HclValue;

impl Frame<'_> {
    /// Returns the value of a call.
    pub(super) fn call(&self, call: &FuncCall) -> Eval {
        let name = call.name.name.as_str();
        match name {
            _ if call.name.is_namespaced() => return Ok(self.not_evaluated(call, name)),
            "try" => return self.first_that_works(call),
            "can" => {
                let tried = call
                    .args
                    .get(0)
                    .map(|arg| self.session.attempt(|| self.eval(arg)));
                return Ok(match tried {
                    Some(Ok(HclValue::Unknown(fault))) => HclValue::Unknown(fault),
                    Some(outcome) => HclValue::Bool(outcome.is_ok()),
                    None => HclValue::Bool(false),
                });
            }
            _ => {}
        }
        let mut args = call
            .args
            .iter()
            .map(|arg| self.eval(arg))
            .collect::<Result<Vec<_>, _>>()?;
        if call.args.expand_final()
            && let Some(last) = args.pop()
        {
            match last.to_items() {
                Ok(items) => args.extend(items.iter().cloned()),
                Err(stop) => return self.placed(call, Err(stop)),
            }
        }
        if let Some(value) = self.path_function(name, &args, call) {
            return self.placed(call, value);
        }
        if let Some(fault) = args.iter().find_map(HclValue::fault) {
            return Ok(HclValue::Unknown(Rc::clone(fault)));
        }
        match self
            .decode(name, &args)
            .or_else(|| functions::call(name, &args))
        {
            Some(value) => self.placed(call, value),
            None => Ok(self.not_evaluated(call, name)),
        }
    }

    /// Evaluates `try`, which is the first argument without an error. An unknown argument may have an error, so no
    /// later argument can be the value.
    fn first_that_works(&self, call: &FuncCall) -> Eval {
        let mut last = self.fault(call, "`try()` has no argument that works");
        for (at, arg) in call.args.iter().enumerate() {
            match self.session.attempt(|| self.eval(arg)) {
                Ok(value) => {
                    if let HclValue::Unknown(_) = value {
                        self.read_on(call.args.iter().skip(at + 1));
                    }
                    return Ok(value);
                }
                Err(fault) => last = fault,
            }
        }
        Err(last)
    }

    /// Evaluates expressions that may not be needed, in order to find the files that they read.
    fn read_on<'e>(&self, rest: impl Iterator<Item = &'e Expression>) {
        for expr in rest {
            // Failures are ignored, because Terragrunt may never evaluate the expression.
            drop(self.session.attempt(|| self.eval(expr)));
        }
    }

    fn not_evaluated(&self, call: &FuncCall, name: &str) -> HclValue {
        let why = match name {
            "run_cmd" => "runs a program",
            "get_env" => "depends on the environment",
            "sops_decrypt_file" => "decrypts a file",
            "get_terraform_command"
            | "get_terraform_cli_args"
            | "get_terragrunt_source_cli_flag" => "depends on how Terragrunt is called",
            name if name.starts_with("get_aws_") => "requests data from AWS",
            "timestamp" | "uuid" | "bcrypt" => "returns another value each time",
            _ => "is not evaluated",
        };
        HclValue::Unknown(self.fault(call, format!("`{name}()` {why}")))
    }
}
