//! Finds the files that another file includes.

use std::rc::Rc;

use hcl_edit::expr::Expression;
use hcl_edit::structure::Block;

use super::FileUse;
use super::files::label;
use super::frame::{Frame, LazyValue};
use super::value::{HclValue, NoValue};
use crate::model::RepoPath;

/// A file that another one includes.
pub(super) struct Include<'s> {
    name: String,
    pub(super) file: RepoPath,
    /// True if its blocks become blocks of the including file.
    pub(super) merged: bool,
    /// Frame of the file; `None` if it cannot be read.
    pub(super) frame: Option<Rc<Frame<'s>>>,
}

impl<'s> Frame<'s> {
    /// Returns the included files. While they are searched for, no expression may depend on them, so the result is an
    /// error.
    pub(super) fn includes(&self) -> Result<Rc<Vec<Include<'s>>>, NoValue> {
        match &*self.includes.borrow() {
            LazyValue::Done(includes) => return Ok(Rc::clone(includes)),
            LazyValue::Busy => {
                return Err("the path of an `include` depends on an `include`".into());
            }
            LazyValue::Fresh => {}
        }
        *self.includes.borrow_mut() = LazyValue::Busy;
        let includes: Rc<Vec<_>> = Rc::new(
            self.source
                .blocks("include")
                .filter_map(|one| self.include(one))
                .collect(),
        );
        *self.includes.borrow_mut() = LazyValue::Done(Rc::clone(&includes));
        Ok(includes)
    }

    fn include(&self, block: &Block) -> Option<Include<'s>> {
        if self.included {
            self.report(
                block,
                "an included file includes another one, which Terragrunt refuses",
            );
            return None;
        }
        let path = &block.body.get_attribute("path")?.value;
        let text = self.needed_text(path, "the `path` of an `include`")?;
        let resolved = self
            .resolve(&text, &self.base())
            .inspect_err(|what| self.report(path, what.as_str()))
            .ok()?;
        self.session.note(resolved.clone(), FileUse::Include);
        let strategy = block
            .body
            .get_attribute("merge_strategy")
            .and_then(|attribute| attribute.value.as_str());
        let frame = self.included_frame(&resolved, path);
        Some(Include {
            name: label(block).to_owned(),
            file: resolved,
            merged: strategy != Some("no_merge"),
            frame: frame.map(Rc::new),
        })
    }

    fn included_frame(&self, file: &RepoPath, place: &Expression) -> Option<Self> {
        if *file == self.source.file {
            self.report(place, "it includes itself");
            return None;
        }
        let source = self.read_source(file, place)?;
        let mut frame = Self::new(
            self.session,
            source,
            self.config.clone(),
            Rc::clone(&self.origin),
        );
        frame.included = true;
        Some(frame)
    }

    /// Returns the value of `include` or `include.name`, and the number of names used.
    pub(super) fn include_value(&self, first: Option<&str>) -> Result<(HclValue, usize), NoValue> {
        let includes = self.includes()?;
        let (include, taken) = match (&includes[..], first) {
            ([only], _) if only.name.is_empty() => (Some(only), 0),
            (all, Some(name)) => (all.iter().find(|include| include.name == name), 1),
            (_, None) => (None, 0),
        };
        let include = include.ok_or("there is no such `include`")?;
        let frame = include
            .frame
            .as_ref()
            .ok_or("the included file cannot be read")?;
        Ok((frame.exposed()?, taken))
    }

    /// Returns the included file for functions like `path_relative_to_include`.
    pub(super) fn selected_include(
        &self,
        name: Option<&HclValue>,
    ) -> Result<Option<RepoPath>, NoValue> {
        if self.included {
            return Ok(Some(self.source.file.clone()));
        }
        let includes = self.includes()?;
        match (&includes[..], name) {
            ([], _) => Ok(None),
            ([only], _) => Ok(Some(only.file.clone())),
            (_, None) => Err("the name of an `include` is missing, since there are several".into()),
            (all, Some(name)) => {
                let name = name.to_text()?;
                let found = all
                    .iter()
                    .find(|include| include.name == *name)
                    .map(|include| include.file.clone());
                found
                    .map(Some)
                    .ok_or_else(|| "there is no such `include`".into())
            }
        }
    }
}
