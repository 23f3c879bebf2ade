//! Evaluates a set with the engine of this program.

use std::path::Path;

use lockkeeper_policy::embedded::RegoFile;
use lockkeeper_policy::sets::PolicySet;

use super::PolicyCheck;
use super::plan::{MAX_INPUT, check_plan};
use crate::workflow::policies::engine::{self, EngineRequest};
use crate::workflow::policies::files::PolicyFiles;
use crate::workflow::policies::{PolicyEvaluation, PolicyWork, ReadFiles, conftest};
use crate::workflow::scratch;
use crate::workflow::steps::Steps;

impl Steps<'_> {
    /// Evaluates a set with the engine of this program. The error says why it cannot be evaluated.
    pub(super) async fn with_engine(
        &self,
        check: &mut PolicyCheck<'_>,
        set: &PolicySet,
    ) -> Result<PolicyEvaluation, String> {
        let plan = self.private_plan(check, MAX_INPUT).await?;
        let request = engine_request(check.work, set, &plan).await?;
        let evaluated = match engine::evaluate(&self.exec, &request).await {
            Ok(found) => PolicyEvaluation {
                output: conftest::text_of(&found),
                found: Ok(found),
                tool: None,
            },
            Err(why) => PolicyEvaluation::missing(why, ""),
        };
        Ok(evaluated.by(engine::ENGINE.to_owned()))
    }
}

/// Collects what the engine of this program needs for a set. The error says why the set cannot be evaluated.
async fn engine_request(
    work: &PolicyWork,
    set: &PolicySet,
    show: &Path,
) -> Result<EngineRequest, String> {
    let files = rego_files(work.policies_of(set)?)?;
    let facts = work.facts.as_ref().map_err(Clone::clone)?;
    check_plan(show, MAX_INPUT)?;
    let input = scratch::read(show.to_owned(), MAX_INPUT).await;
    let input =
        input.map_err(|error| format!("the plan as JSON cannot be read: {error}. Plan again"))?;
    let input = String::from_utf8(input.unwrap_or_default())
        .map_err(|_| "the plan as JSON is not text. Plan again".to_owned())?;
    Ok(EngineRequest {
        files,
        data: vec![facts.to_data()],
        input,
        namespaces: set.namespaces.clone(),
    })
}

/// Returns the files of policies in Rego.
fn rego_files(read: &ReadFiles) -> Result<Vec<RegoFile>, String> {
    let PolicyFiles::Read(files) = &read.files else {
        return Err(format!("the policies in {} were not read", read.origin));
    };
    let rego: Result<Vec<RegoFile>, String> = files
        .iter()
        .filter(|file| file.is_rego())
        .map(|file| {
            let text = std::str::from_utf8(&file.content)
                .map_err(|_| format!("`{}` is not text. Correct the policies", file.path))?;
            Ok(RegoFile {
                path: file.path.clone(),
                text: text.to_owned(),
            })
        })
        .collect();
    match rego {
        Ok(files) if files.is_empty() => Err(format!(
            "there is no file with policies (`*.rego`) in {}. An administrator must correct the policy set",
            read.origin
        )),
        rego => rego,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use lockkeeper_policy::sets::PolicyEngine;

    use super::*;
    use crate::workflow::policies::ReadyPolicies;
    use crate::workflow::policies::files::PolicyFile;
    use crate::workflow::policies::testing::{policy_set, work_of};

    /// Returns the work for a set that the engine of this program evaluates, with files of these names.
    fn embedded(names: &[&str]) -> PolicyWork {
        let file = |name: &&str| PolicyFile {
            path: (*name).to_owned(),
            content: b"package main".to_vec(),
        };
        let read = ReadFiles {
            files: PolicyFiles::Read(names.iter().map(file).collect()),
            origin: "policies at `main`".to_owned(),
            content: None,
        };
        let mut set = policy_set("a", PolicyEngine::Embedded);
        set.namespaces = vec!["net".to_owned()];
        let waivers = Ok(Vec::new());
        let read = Ok(read);
        work_of(set, ReadyPolicies { read, waivers })
    }

    #[tokio::test]
    async fn the_engine_gets_the_rego_the_facts_and_the_plan() {
        let dir = tempfile::tempdir().unwrap();
        let show = dir.path().join("plan.json");
        fs::write(&show, r#"{"resource_changes": []}"#).unwrap();
        let work = embedded(&["a.rego", "aws/b.rego", "README.md", "data.json"]);
        let request = engine_request(&work, &work.sets[0].0, &show).await.unwrap();
        let paths: Vec<&str> = request.files.iter().map(|file| &*file.path).collect();
        assert_eq!(paths, ["a.rego", "aws/b.rego"]);
        assert_eq!(request.files[0].text, "package main");
        assert_eq!(request.data, [work.facts.as_ref().unwrap().to_data()]);
        assert_eq!(request.input, r#"{"resource_changes": []}"#);
        assert_eq!(request.namespaces, ["net"]);
    }

    #[tokio::test]
    async fn without_policies_facts_or_plan_nothing_is_evaluated() {
        let dir = tempfile::tempdir().unwrap();
        let (show, absent) = (dir.path().join("plan.json"), dir.path().join("absent"));
        fs::write(&show, "{}").unwrap();
        let damaged = dir.path().join("damaged");
        fs::write(&damaged, [0xff]).unwrap();
        let large = dir.path().join("large");
        fs::File::create_new(&large)
            .unwrap()
            .set_len(MAX_INPUT + 1)
            .unwrap();
        let fine = || embedded(&["a.rego"]);
        let mut binary = fine();
        let not_text = PolicyFile {
            path: "a.rego".to_owned(),
            content: vec![0xff],
        };
        let read = ReadFiles {
            files: PolicyFiles::Read(vec![not_text]),
            origin: String::new(),
            content: None,
        };
        let set = policy_set("a", PolicyEngine::Embedded);
        let ready = |read| ReadyPolicies {
            read,
            waivers: Ok(Vec::new()),
        };
        binary.sources = work_of(set.clone(), ready(Ok(read))).sources;
        let gone = work_of(set, ready(Err("the branch is gone".to_owned())));
        let mut unread = fine();
        unread.sources.clear();
        let mut unknown = fine();
        unknown.facts = Err("the approvals cannot be determined".to_owned());
        for (work, show, problem) in [
            (
                embedded(&["README.md"]),
                &show,
                "no file with policies (`*.rego`)",
            ),
            (embedded(&[]), &show, "no file with policies (`*.rego`)"),
            (binary, &show, "`a.rego` is not text"),
            (gone, &show, "the branch is gone"),
            (unread, &show, "its policies were not read"),
            (unknown, &show, "the approvals cannot be determined"),
            (fine(), &absent, "must add the step `show`"),
            (fine(), &damaged, "the plan as JSON is not text"),
            (
                fine(),
                &large,
                "the plan as JSON has 65 MiB, and at most 64 MiB are evaluated",
            ),
        ] {
            let request = engine_request(&work, &work.sets[0].0, show).await;
            let error = request.err().unwrap();
            assert!(error.contains(problem), "{error}");
        }
    }
}
