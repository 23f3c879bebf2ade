//! Reports that real tools wrote, in `tests/fixtures/policies/reports`. The README there names the versions.

use std::fmt::Write as _;

use crate::findings::{FindingLevel, PolicyFinding, ReadError};
use crate::{junit, plain, sarif};

macro_rules! report {
    ($name:literal) => {
        include_str!(concat!("../../../tests/fixtures/policies/reports/", $name))
    };
}

/// Writes each finding on one line: level, rule, resource, place, message and link.
fn told(read: Result<Vec<PolicyFinding>, ReadError>) -> String {
    let mut text = String::new();
    for finding in read.unwrap() {
        let level = match finding.level {
            FindingLevel::Deny => "deny",
            FindingLevel::RequireApproval { .. } => "approval",
            FindingLevel::Warn => "warn",
        };
        let place = finding.place.map_or_else(
            || "-".to_owned(),
            |place| match place.line {
                Some(line) => format!("{}:{line}", place.file),
                None => place.file,
            },
        );
        writeln!(
            text,
            "{level} | {} | {} | {place} | {} | {}",
            finding.rule,
            finding.resource.as_deref().unwrap_or("-"),
            finding.message,
            finding.link.as_deref().unwrap_or("-"),
        )
        .unwrap();
    }
    text
}

fn why_not_evaluated(read: Result<Vec<PolicyFinding>, ReadError>) -> String {
    match read {
        Err(ReadError::NotEvaluated(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn checkov_reports_about_a_plan() {
    let expected = r#"
deny | CKV_AWS_3 | aws_ebs_volume.data["a"] | plan.json | Ensure all data stored in the EBS is securely encrypted | -
deny | CKV_AWS_3 | aws_ebs_volume.data["b"] | plan.json | Ensure all data stored in the EBS is securely encrypted | -
deny | CKV_AWS_24 | module.network.aws_security_group.open | plan.json | Ensure no security groups allow ingress from 0.0.0.0:0 to port 22 | -
deny | CKV2_ACME_2 | aws_ebs_volume.data["a"] | plan.json | Volumes have an owner | https://docs.example.com/owner
deny | CKV2_ACME_2 | aws_ebs_volume.data["b"] | plan.json | Volumes have an owner | https://docs.example.com/owner
"#;
    assert_eq!(
        told(junit::read(report!("checkov-plan.xml"))),
        expected.trim_start()
    );
    assert_eq!(
        junit::read(report!("checkov-clean-plan.xml")),
        Ok(Vec::new())
    );
}

/// The code of the pull request skips one check, which has no effect.
#[test]
fn checkov_reports_about_a_plan_with_its_code() {
    let expected = r#"
deny | CKV_AWS_3 | aws_ebs_volume.data["a"] | main.tf:23 | Ensure all data stored in the EBS is securely encrypted | -
deny | CKV_AWS_3 | aws_ebs_volume.data["b"] | main.tf:23 | Ensure all data stored in the EBS is securely encrypted | -
deny | CKV2_ACME_2 | aws_ebs_volume.data["a"] | main.tf:23 | Volumes have an owner | https://docs.example.com/owner
deny | CKV2_ACME_2 | aws_ebs_volume.data["b"] | main.tf:23 | Volumes have an owner | https://docs.example.com/owner
deny | CKV_AWS_24 | module.network.aws_security_group.open | network/main.tf | The code skips this check, which has no effect here: Only from the office | -
"#;
    let read = junit::read(report!("checkov-plan-with-code.xml"));
    assert_eq!(told(read), expected.trim_start());
}

/// The log names no resource, so two findings look the same, and have the line 1 of the plan.
#[test]
fn checkov_reports_in_sarif() {
    let expected = r"
deny | CKV_AWS_3 | - | plan.json:1 | Ensure all data stored in the EBS is securely encrypted | -
deny | CKV_AWS_3 | - | plan.json:1 | Ensure all data stored in the EBS is securely encrypted | -
deny | CKV_AWS_24 | - | plan.json:1 | Ensure no security groups allow ingress from 0.0.0.0:0 to port 22 | -
warn | CKV2_ACME_2 | - | plan.json:1 | Volumes have an owner | https://docs.example.com/owner
warn | CKV2_ACME_2 | - | plan.json:1 | Volumes have an owner | https://docs.example.com/owner
";
    let read = sarif::read(report!("checkov-plan.sarif"));
    assert_eq!(told(read), expected.trim_start());
    let expected = r"
deny | CKV_AWS_24 | - | prod eu/main.tf:14 | Ensure no security groups allow ingress from 0.0.0.0:0 to port 22 | -
warn | CKV2_ACME_2 | - | prod eu/main.tf:9 | Volumes have an owner | https://docs.example.com/owner
deny | CKV_AWS_20 | - | prod eu/main.tf:9 | S3 Bucket has an ACL defined which allows public READ access. | -
deny | CKV_AWS_23 | - | prod eu/main.tf:14 | Ensure every security group and rule has a description | -
";
    let report = report!("checkov-directory.sarif");
    assert_eq!(told(sarif::read(report)), expected.trim_start());
    assert_eq!(sarif::tools(report).as_deref(), Some("Checkov 3.3.30"));
}

/// checkov succeeds without a plan. Its log is the one of a plan without violations, byte for byte.
#[test]
fn checkov_without_a_plan_evaluates_nothing() {
    let read = sarif::read(report!("checkov-missing-plan.sarif"));
    let why = why_not_evaluated(read);
    assert!(why.contains("--output junitxml"), "{why}");
    let read = junit::read(report!("checkov-missing-plan.xml"));
    let why = why_not_evaluated(read);
    assert!(why.contains("cannot read its input"), "{why}");
}

#[test]
fn tflint_reports_in_sarif() {
    let link =
        "https://github.com/terraform-linters/tflint-ruleset-terraform/blob/v0.15.0/docs/rules/";
    let expected = r#"
warn | terraform_deprecated_interpolation | - | main.tf:26 | Interpolation-only expressions are deprecated in Terraform v0.12.14 | terraform_deprecated_interpolation.md
warn | terraform_required_providers | - | main.tf:14 | Missing version constraint for provider "aws" in `required_providers` | terraform_required_providers.md
warn | terraform_required_version | - | main.tf | terraform "required_version" attribute is required | terraform_required_version.md
warn | terraform_typed_variables | - | main.tf:1 | `name` variable has no type | terraform_typed_variables.md
warn | terraform_unused_declarations | - | main.tf:3 | variable "unused" is declared but not used | terraform_unused_declarations.md
warn | terraform_unused_declarations | - | main.tf:26 | local.secret is declared but not used | terraform_unused_declarations.md
"#;
    let report = report!("tflint.sarif");
    let told = told(sarif::read(report)).replace(link, "");
    assert_eq!(told, expected.trim_start());
    assert_eq!(sarif::tools(report).as_deref(), Some("tflint 0.64.0"));
    assert_eq!(sarif::read(report!("tflint-clean.sarif")), Ok(Vec::new()));
}

#[test]
fn tflint_reports_in_junit() {
    let expected = r#"
deny | terraform_typed_variables | - | main.tf:1 | `name` variable has no type | -
deny | terraform_required_version | - | main.tf:1 | terraform "required_version" attribute is required | -
deny | terraform_unused_declarations | - | main.tf:3 | variable "unused" is declared but not used | -
deny | terraform_required_providers | - | main.tf:14 | Missing version constraint for provider "aws" in `required_providers` | -
deny | terraform_unused_declarations | - | main.tf:26 | local.secret is declared but not used | -
deny | terraform_deprecated_interpolation | - | main.tf:26 | Interpolation-only expressions are deprecated in Terraform v0.12.14 | -
"#;
    assert_eq!(
        told(junit::read(report!("tflint.xml"))),
        expected.trim_start()
    );
    let why = why_not_evaluated(junit::read(report!("tflint-clean.xml")));
    assert!(why.contains("let it write SARIF"), "{why}");
}

/// Nobody can approve code that tflint did not read.
#[test]
fn errors_of_tflint_are_no_violations() {
    for (read, expected) in [
        (
            sarif::read(report!("tflint-syntax-error.sarif")),
            "tflint failed: Expected the start of an expression, but found an invalid expression token.",
        ),
        (
            junit::read(report!("tflint-syntax-error.xml")),
            "tflint failed: main.tf:2,12-3,1: Expected the start of an expression, but found an invalid expression token.",
        ),
        (
            junit::read(report!("tflint-no-configuration.xml")),
            "tflint failed: Failed to load TFLint config; failed to load file: open /srv/tflint.hcl: no such file or directory",
        ),
    ] {
        assert_eq!(why_not_evaluated(read), expected);
    }
}

/// trivy names no resource. Its places are in code that it writes from the plan, so they only tell findings apart.
#[test]
fn trivy_reports_about_a_plan() {
    let link = "https://avd.aquasec.com/misconfig/";
    let expected = r"
warn | ACME-0001 | - | - | The plan was read | -
deny | AWS-0026 | - | - | EBS volumes must be encrypted | aws-0026
deny | AWS-0026 | - | - | EBS volumes must be encrypted | aws-0026
warn | AWS-0027 | - | - | EBS volume encryption should use Customer Managed Keys | aws-0027
warn | AWS-0027 | - | - | EBS volume encryption should use Customer Managed Keys | aws-0027
warn | AWS-0099 | - | - | Missing description for security group. | aws-0099
deny | AWS-0107 | - | - | Security groups should not allow unrestricted ingress to SSH or RDP from any IP address. | aws-0107
warn | AWS-0124 | - | - | Missing description for security group rule. | aws-0124
";
    let report = report!("trivy-plan.sarif");
    let read = sarif::read(report);
    assert_eq!(told(read.clone()).replace(link, ""), expected.trim_start());
    let found = read.unwrap();
    assert_ne!(found[1].identity(), found[2].identity(), "two volumes");
    assert_eq!(sarif::tools(report).as_deref(), Some("Trivy 0.76.0"));
    let expected = "warn | ACME-0001 | - | - | The plan was read | -\n";
    assert_eq!(
        told(sarif::read(report!("trivy-clean-plan.sarif"))),
        expected
    );
    // JUnit has no severity, and the report was made without the check of one's own.
    let expected = r"
deny | AWS-0026 | - | - | EBS volumes must be encrypted | -
deny | AWS-0026 | - | - | EBS volumes must be encrypted | -
deny | AWS-0027 | - | - | EBS volume encryption should use Customer Managed Keys | -
deny | AWS-0027 | - | - | EBS volume encryption should use Customer Managed Keys | -
deny | AWS-0099 | - | - | Missing description for security group. | -
deny | AWS-0107 | - | - | Security groups should not allow unrestricted ingress to SSH or RDP from any IP address. | -
deny | AWS-0124 | - | - | Missing description for security group rule. | -
";
    let read = junit::read(report!("trivy-plan.xml"));
    assert_eq!(told(read.clone()), expected.trim_start());
    let found = read.unwrap();
    assert_ne!(found[0].identity(), found[1].identity(), "two volumes");
    let read = plain::read(report!("trivy-plan.txt"), true).unwrap();
    assert!(read[0].is_violation(), "`FAILURES: 7` is a failure");
}

/// trivy succeeds if it cannot use the plan, and its reports are those of a plan without violations: in SARIF only a check of
/// one's own differs, and in `JUnit` the number of tests that passed.
#[test]
fn trivy_without_a_plan_evaluates_nothing() {
    for read in [
        sarif::read(report!("trivy-unread-plan.sarif")),
        junit::read(report!("trivy-unread-plan.xml")),
        junit::read(report!("trivy-clean-plan.xml")),
        plain::read(report!("trivy-clean-plan.txt"), true),
        plain::read(report!("trivy-clean-plan.json"), true),
    ] {
        let why = why_not_evaluated(read);
        assert!(why.starts_with("trivy found nothing"), "{why}");
        assert!(why.contains("--config-check"), "{why}");
    }
    let why = why_not_evaluated(junit::read(report!("trivy-broken-plan.xml")));
    assert!(why.contains("counts no test"), "{why}");
    for text in [
        report!("trivy-unread-plan.txt"),
        report!("trivy-broken-plan.txt"),
        report!("trivy-broken-plan.json"),
    ] {
        let why = why_not_evaluated(plain::read(text, true));
        assert!(why.starts_with("trivy could not read"), "{why}");
    }
    let read = sarif::read(report!("trivy-clean-plan.json"));
    assert!(matches!(read, Err(ReadError::Format { .. })), "{read:?}");
}

#[test]
fn trivy_reports_about_code() {
    let expected = r"
deny | AWS-0026 | - | prod eu/main.tf:9 | EBS volumes must be encrypted | aws-0026
deny | AWS-0026 | - | prod eu/main.tf:9 | EBS volumes must be encrypted | aws-0026
warn | AWS-0027 | - | prod eu/main.tf:9 | EBS volume encryption should use Customer Managed Keys | aws-0027
warn | AWS-0027 | - | prod eu/main.tf:9 | EBS volume encryption should use Customer Managed Keys | aws-0027
warn | AWS-0099 | - | prod eu/network/main.tf:1 | Missing description for security group. | aws-0099
deny | AWS-0107 | - | prod eu/network/main.tf:8 | Security groups should not allow unrestricted ingress to SSH or RDP from any IP address. | aws-0107
warn | AWS-0124 | - | prod eu/network/main.tf:4 | Missing description for security group rule. | aws-0124
";
    let read = sarif::read(report!("trivy-directory.sarif"));
    let link = "https://avd.aquasec.com/misconfig/";
    assert_eq!(told(read).replace(link, ""), expected.trim_start());
    let in_junit: Vec<String> = expected
        .lines()
        .skip(1)
        .map(|line| {
            let start = line.replace("warn |", "deny |");
            format!("{}| -\n", start.rsplit_once("| ").unwrap().0)
        })
        .collect();
    let read = junit::read(report!("trivy-directory.xml"));
    assert_eq!(told(read), in_junit.concat());
}
