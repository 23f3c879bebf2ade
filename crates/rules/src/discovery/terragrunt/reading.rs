//! Evaluates functions about files: their paths and their content. Files that a function reads or looks for are
//! noted.

use std::rc::Rc;

use hcl_edit::expr::FuncCall;

use super::FileUse;
use super::frame::Frame;
use super::functions::from_json;
use super::paths::{absolute, relative, short};
use super::value::{HclValue, NoValue};
use crate::model::RepoPath;

/// Name that Terragrunt looks for if none is given.
pub(super) const CONFIG: &str = "terragrunt.hcl";

/// Functions whose value needs more than the file that they read.
const READERS: [&str; 10] = [
    "filebase64",
    "filebase64sha256",
    "filebase64sha512",
    "filemd5",
    "filesha1",
    "filesha256",
    "filesha512",
    "read_tfvars_file",
    "sops_decrypt_file",
    "templatefile",
];

impl Frame<'_> {
    /// Returns the value of a function about files or paths; `None` for every other function.
    pub(super) fn path_function(
        &self,
        name: &str,
        args: &[HclValue],
        call: &FuncCall,
    ) -> Option<Result<HclValue, NoValue>> {
        let dir = |path: RepoPath| HclValue::text(&absolute(&path));
        let root = RepoPath::root();
        Some(match name {
            "get_terragrunt_dir" => dir(self.base()),
            "get_original_terragrunt_dir" => dir(self.origin.dir.clone()),
            "get_repo_root" => dir(root),
            "get_path_from_repo_root" => HclValue::text(&relative(&root, &self.base())),
            "get_path_to_repo_root" => HclValue::text(&relative(&self.base(), &root)),
            "path_relative_to_include" => self
                .include_dir(args)
                .and_then(|include| HclValue::text(&relative(&include, &self.base()))),
            "path_relative_from_include" => self
                .include_dir(args)
                .and_then(|include| HclValue::text(&relative(&self.base(), &include))),
            "get_parent_terragrunt_dir" => self.include_dir(args).and_then(dir),
            "abspath" => self.path(args, &self.base()).and_then(dir),
            "find_in_parent_folders" => self.find_in_parent_folders(args),
            "read_terragrunt_config" => self.read_config(args, call),
            "mark_as_read" => self.mark_as_read(args, call),
            "file" => self.file(args, call),
            "fileexists" => self.file_exists(args),
            "fileset" | "mark_glob_as_read" => {
                let what = format!(
                    "`{name}()` is not evaluated: name the files, or mark each with `mark_as_read()`"
                );
                self.report(call, what.as_str());
                Err(NoValue::Unknown(self.fault(call, what)))
            }
            name if READERS.contains(&name) => self.opaque_file(name, args, call),
            _ => return None,
        })
    }

    /// Returns the directory of the included file, or the frame's own if nothing is included.
    fn include_dir(&self, args: &[HclValue]) -> Result<RepoPath, NoValue> {
        Ok(self
            .selected_include(args.first())?
            .map_or_else(|| self.base(), |file| file.parent()))
    }

    /// Returns the path that the first argument names.
    fn path(&self, args: &[HclValue], base: &RepoPath) -> Result<RepoPath, NoValue> {
        let text = args.first().ok_or("an argument is missing")?.to_text()?;
        self.resolve(&text, base).map_err(NoValue::Wrong)
    }

    fn exists(&self, path: &RepoPath) -> bool {
        let tree = self.session.files.tree;
        tree.has_file(path) || tree.dir_exists(path)
    }

    fn find_in_parent_folders(&self, args: &[HclValue]) -> Result<HclValue, NoValue> {
        let name: Rc<str> = args.first().map_or(Ok(CONFIG.into()), HclValue::to_text)?;
        let mut dir = self.base();
        while !dir.is_root() {
            dir = dir.parent();
            let Ok(candidate) = dir.join(&name) else {
                continue;
            };
            self.session.note(candidate.clone(), FileUse::LookedFor);
            if self.exists(&candidate) {
                return HclValue::text(&absolute(&candidate));
            }
        }
        let missing = || {
            NoValue::Wrong(format!(
                "`{}` does not exist in any directory above",
                short(&name)
            ))
        };
        args.get(1).cloned().ok_or_else(missing)
    }

    /// Returns a path that a function reads from. An unknown path is reported, because a file is then missed.
    fn read_path(
        &self,
        args: &[HclValue],
        base: &RepoPath,
        call: &FuncCall,
    ) -> Result<RepoPath, NoValue> {
        self.path(args, base).inspect_err(|stop| {
            if let NoValue::Unknown(fault) = stop {
                let name = call.name.name.as_str();
                let cause = format!("{} ({}:{})", fault.what, fault.file, fault.line);
                self.report(
                    call,
                    format!("the file that `{name}()` reads is not known: {cause}"),
                );
            }
        })
    }

    fn read_config(&self, args: &[HclValue], call: &FuncCall) -> Result<HclValue, NoValue> {
        let mut file = self.read_path(args, &self.base(), call)?;
        let tree = self.session.files.tree;
        if tree.dir_exists(&file) {
            file = file.join(CONFIG).map_err(|error| error.to_string())?;
        }
        self.session.note(file.clone(), FileUse::Config);
        let known = self.session.configs.borrow().get(&file).cloned();
        match known {
            Some(Some(value)) => return Ok(value),
            Some(None) => return Err("a configuration reads itself".into()),
            None => {}
        }
        if !tree.has_file(&file) {
            return args
                .get(1)
                .cloned()
                .ok_or_else(|| format!("there is no `{}`", short(file.as_str())).into());
        }
        let value = self.evaluated_config(&file, call)?;
        self.session
            .configs
            .borrow_mut()
            .insert(file, Some(value.clone()));
        Ok(value)
    }

    fn evaluated_config(&self, file: &RepoPath, call: &FuncCall) -> Result<HclValue, NoValue> {
        let unreadable =
            || NoValue::Unsupported(format!("`{}` cannot be read", short(file.as_str())));
        let source = self.read_source(file, call).ok_or_else(unreadable)?;
        self.session.enter().map_err(NoValue::Unsupported)?;
        self.session.configs.borrow_mut().insert(file.clone(), None);
        let frame = Frame::new(self.session, source, file.clone(), Rc::clone(&self.origin));
        frame.walk();
        let value = frame.exposed();
        self.session.configs.borrow_mut().remove(file);
        self.session.leave();
        value
    }

    fn file(&self, args: &[HclValue], call: &FuncCall) -> Result<HclValue, NoValue> {
        let file = self.read_path(args, &self.source.file.parent(), call)?;
        self.session.note(file.clone(), FileUse::File);
        if !self.session.files.tree.has_file(&file) {
            return Err(format!("there is no `{}`", short(file.as_str())).into());
        }
        let unreadable =
            || NoValue::Unsupported(format!("`{}` cannot be read", short(file.as_str())));
        self.session
            .files
            .text(&file)
            .map(HclValue::Text)
            .ok_or_else(unreadable)
    }

    fn opaque_file(
        &self,
        name: &str,
        args: &[HclValue],
        call: &FuncCall,
    ) -> Result<HclValue, NoValue> {
        let of_terragrunt = matches!(name, "read_tfvars_file" | "sops_decrypt_file");
        let base = if of_terragrunt {
            self.base()
        } else {
            self.source.file.parent()
        };
        let file = self.read_path(args, &base, call)?;
        self.session.note(file.clone(), FileUse::File);
        if !self.session.files.tree.has_file(&file) {
            return Err(format!("there is no `{}`", short(file.as_str())).into());
        }
        let what = format!("the result of `{name}()` for a file is not evaluated");
        Err(NoValue::Unknown(self.fault(call, what)))
    }

    fn mark_as_read(&self, args: &[HclValue], call: &FuncCall) -> Result<HclValue, NoValue> {
        let file = self.read_path(args, &self.base(), call)?;
        self.session.note(file.clone(), FileUse::File);
        HclValue::text(&absolute(&file))
    }

    fn file_exists(&self, args: &[HclValue]) -> Result<HclValue, NoValue> {
        let file = self.path(args, &self.source.file.parent())?;
        self.session.note(file.clone(), FileUse::LookedFor);
        Ok(HclValue::Bool(self.session.files.tree.has_file(&file)))
    }

    /// Evaluates `jsondecode` and `yamldecode`; returns `None` for every other function.
    pub(super) fn decode(
        &self,
        name: &str,
        args: &[HclValue],
    ) -> Option<Result<HclValue, NoValue>> {
        let decode: fn(&str) -> Result<HclValue, NoValue> = match name {
            "jsondecode" => |text| {
                from_json(
                    &serde_json::from_str(text).map_err(|_| "a text is not JSON")?,
                    0,
                )
            },
            "yamldecode" => |text| from_json(&yaml(text)?, 0),
            _ => return None,
        };
        let language = if name == "jsondecode" { "json" } else { "yaml" };
        let text = args
            .first()
            .ok_or(NoValue::from("an argument is missing"))
            .and_then(HclValue::to_text);
        Some(text.and_then(|text| self.session.decoded(&text, language, || decode(&text))))
    }
}

fn yaml(text: &str) -> Result<serde_json::Value, NoValue> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: 32, flow_nesting_limit: 32, enforce_alias_anchor_ratio: false },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 20_000 },
        // `yes` and `on` are texts, as in Terraform.
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|_| NoValue::unsupported("a text is not YAML, or too large"))
}
