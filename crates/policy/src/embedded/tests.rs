use lockkeeper_model::model::Sha256Digest;

use super::*;
use crate::conftest;
use crate::findings::FindingPlace;

const PLAN: &str = r#"{"resource_changes": [
    {"address": "aws_s3_bucket.logs", "change": {"actions": ["create"], "after": {"acl": "public-read", "size": null}}},
    {"address": "aws_s3_bucket.data", "change": {"actions": ["delete"], "after": {"acl": "private", "size": 3}}}
]}"#;

fn file(text: &str) -> RegoFile {
    RegoFile {
        path: "deny.rego".to_owned(),
        text: text.to_owned(),
    }
}

fn limits() -> EvalLimits {
    EvalLimits {
        time: Duration::from_mins(5),
        ..EvalLimits::default()
    }
}

fn on_plan(text: &str, plan: &str) -> Result<Vec<PolicyFinding>, EvalError> {
    evaluate(&[file(text)], &[], plan, &[], &limits())
}

/// Returns the sorted findings as `rule: message`, with `!` for violations and `?` for warnings.
fn found(text: &str) -> Vec<String> {
    let findings = on_plan(text, PLAN).unwrap();
    let shown = findings.iter().map(|finding| {
        let mark = match &finding.level {
            FindingLevel::Deny => "!".to_owned(),
            FindingLevel::RequireApproval { count, teams } => format!("{count}{}", teams.join(",")),
            FindingLevel::Warn => "?".to_owned(),
        };
        format!("{mark} {}: {}", finding.rule, finding.message)
    });
    let mut shown: Vec<String> = shown.collect();
    shown.sort();
    shown
}

fn error(text: &str) -> String {
    on_plan(text, PLAN).unwrap_err().to_string()
}

#[test]
fn rules_are_found_by_their_names_as_conftest_finds_them() {
    let text = r#"package main

deny contains msg if {
    some change in input.resource_changes
    change.change.after.acl == "public-read"
    msg := sprintf("%s is public", [change.address])
}

deny_x contains "x" if true

violation contains {"msg": "v"} if true

violation_a_b2 contains "ab" if true

warn contains "w" if true

warn_x contains "nothing" if false

# None of these is evaluated.
denied contains "no" if true
deny_ contains "no" if true
deny__x contains "no" if true
warning contains "no" if true
"#;
    assert_eq!(
        found(text),
        [
            "! main.deny: aws_s3_bucket.logs is public",
            "! main.deny_x: x",
            "! main.violation: v",
            "! main.violation_a_b2: ab",
            "? main.warn: w",
        ]
    );
}

#[test]
fn objects_name_the_resource_the_place_and_more() {
    let text = r#"package main

deny contains {
    "msg": "m",
    "resource": "aws_s3_bucket.logs",
    "file": "main.tf",
    "line": 3,
    "link": "https://example.com",
    "details": {"acl": "public-read"},
} if true
"#;
    let findings = on_plan(text, PLAN).unwrap();
    assert_eq!(
        findings,
        [PolicyFinding {
            level: FindingLevel::Deny,
            rule: "main.deny".to_owned(),
            message: "m".to_owned(),
            resource: Some("aws_s3_bucket.logs".to_owned()),
            place: Some(FindingPlace {
                file: "main.tf".to_owned(),
                line: Some(3)
            }),
            link: Some("https://example.com".to_owned()),
            evidence: Some("{\n  \"acl\": \"public-read\"\n}".to_owned()),
            other: Some(Sha256Digest::of(br#"{"link":"https://example.com"}"#)),
            waived: None,
        }]
    );
}

#[test]
fn approvals_are_required_by_a_rule_or_by_an_object() {
    let text = r#"package main

require_approval contains {"msg": "a", "count": 2, "teams": ["acme/security"]} if true
require_approval_one contains "b" if true
violation contains {"msg": "c", "require_approval": {"count": 3}} if true
"#;
    assert_eq!(
        found(text),
        [
            "1 main.require_approval_one: b",
            "2acme/security main.require_approval: a",
            "3 main.violation: c",
        ]
    );
    for keys in [
        r#""count": 0"#,
        r#""count": 101"#,
        r#""count": "two""#,
        r#""teams": "acme""#,
        r#""teams": [1]"#,
        r#""teams": [""]"#,
        r#""team": ["acme/security"]"#,
        r#""teams": ["acme/security"], "cout": 3"#,
    ] {
        let text =
            format!("package main\nrequire_approval contains {{\"msg\": \"x\", {keys}}} if true\n");
        let found = on_plan(&text, PLAN);
        assert!(
            matches!(found, Err(EvalError::Result { .. })),
            "{keys}: {found:?}"
        );
        for rule in ["deny", "violation", "warn"] {
            let text = format!(
                "package main\n{rule} contains {{\"msg\": \"x\", \"require_approval\": {{{keys}}}}} if true\n"
            );
            assert!(
                error(&text).contains("`require_approval` must be an object such as"),
                "{rule} {keys}"
            );
        }
    }
    for (value, kind) in [
        ("true", "a boolean"),
        ("null", "null"),
        ("2", "a number"),
        ("[2]", "a list"),
    ] {
        let text = format!(
            "package main\nviolation contains {{\"msg\": \"x\", \"require_approval\": {value}}} if true\n"
        );
        let problem = format!("expected an object, found {kind}");
        assert!(error(&text).contains(&problem), "{value}");
    }
    // It raises the level of hints as well.
    let text = "package main\nwarn contains {\"msg\": \"w\", \"require_approval\": {\"count\": 2}} if true\n";
    assert_eq!(found(text), ["2 main.warn: w"]);
    let text = "package main\nrequire_approval contains {\"msg\": \"a\", \"require_approval\": {}} if true\n";
    assert!(error(text).contains("the key `require_approval`"));
}

#[test]
fn results_are_read_as_those_of_conftest() {
    for object in [
        r#"{"msg": "m"}"#,
        r#"{"msg": "m", "resource": {"address": "a.b", "acl": "public"}}"#,
        r#"{"msg": "m", "resource": ["a"], "link": 7, "details": false}"#,
        r#"{"msg": "m", "address": "a.b", "severity": "high"}"#,
        r#"{"msg": "m", "file": 7, "line": "8"}"#,
        r#"{"msg": "m", "_loc": {"file": "a.tf", "line": 3}}"#,
        r#"{"msg": "m", "require_approval": {"count": 2}}"#,
        r#"{"msg": "m", "require_approval": {"cout": 2}}"#,
    ] {
        let text = format!("package main\ndeny contains {object} if true\n");
        let embedded = on_plan(&text, PLAN).ok();
        let mut metadata: serde_json::Map<String, Value> = serde_json::from_str(object).unwrap();
        let message = metadata.remove("msg");
        let place = metadata.remove("_loc");
        metadata.insert("query".to_owned(), "data.main.deny".into());
        let result = serde_json::json!({"msg": message, "loc": place, "metadata": metadata});
        let report =
            serde_json::json!([{"namespace": "main", "successes": 0, "failures": [result]}]);
        let of_conftest = conftest::read(&report.to_string()).ok();
        assert_eq!(embedded, of_conftest, "{object}");
    }
}

#[test]
fn resources_that_are_objects_tell_violations_apart() {
    let address = |n: usize| {
        let text = format!(
            "package main\ndeny contains {{\"msg\": \"public\", \"resource\": input.resource_changes[{n}]}} if true\n"
        );
        on_plan(&text, PLAN).unwrap().remove(0).resource
    };
    assert_eq!(address(0).as_deref(), Some("aws_s3_bucket.logs"));
    assert_eq!(address(1).as_deref(), Some("aws_s3_bucket.data"));
}

#[test]
fn excepted_rules_have_no_findings() {
    let text = r#"package main

deny_public contains "public" if true
warn_public contains "public" if true
deny_other contains "other" if true
deny contains "plain" if true

exception contains rules if {
    rules := ["public"]
}
"#;
    assert_eq!(
        found(text),
        ["! main.deny: plain", "! main.deny_other: other"]
    );
    let text = "package main\ndeny contains \"x\" if true\nexception contains [\"\"] if true\n";
    assert_eq!(found(text), Vec::<String>::new());
    let text = "package main\ndeny contains \"x\" if true\nexception contains [\"y\"] if true\n";
    assert_eq!(found(text), ["! main.deny: x"]);
}

#[test]
fn only_the_named_packages_are_evaluated() {
    let files = [
        file("package main\ndeny contains \"a\" if true\n"),
        file("package terraform.aws\ndeny contains \"b\" if true\n"),
    ];
    let rules = |namespaces: &[&str]| {
        let namespaces: Vec<String> = namespaces.iter().map(|name| (*name).to_owned()).collect();
        let findings = evaluate(&files, &[], PLAN, &namespaces, &limits())?;
        let mut rules: Vec<String> = findings.into_iter().map(|finding| finding.rule).collect();
        rules.sort();
        Ok::<_, EvalError>(rules)
    };
    assert_eq!(rules(&[]).unwrap(), ["main.deny"]);
    assert_eq!(rules(&["terraform.aws"]).unwrap(), ["terraform.aws.deny"]);
    assert_eq!(rules(&["*"]).unwrap(), ["main.deny", "terraform.aws.deny"]);
    // A package below is another package.
    for none in [&["terraform"][..], &["mian"]] {
        assert!(
            matches!(rules(none), Err(EvalError::NoRules(_))),
            "{none:?}"
        );
    }
}

#[test]
fn facts_and_data_are_joined_with_the_plan() {
    let text = r#"package main

deny contains msg if {
    data.lockkeeper.author == data.banned[_]
    count(input.resource_changes) == 2
    msg := concat(" ", ["not by", data.lockkeeper.author])
}
"#;
    let data = [
        serde_json::json!({"lockkeeper": {"author": "mallory"}}),
        serde_json::json!({"banned": ["mallory"]}),
    ];
    let findings = evaluate(&[file(text)], &data, PLAN, &[], &limits()).unwrap();
    assert_eq!(findings[0].message, "not by mallory");
    let clash = [
        serde_json::json!({"lockkeeper": {"author": "mallory"}}),
        serde_json::json!({"lockkeeper": {"author": "alice"}}),
    ];
    assert!(matches!(
        evaluate(&[file(text)], &clash, PLAN, &[], &limits()),
        Err(EvalError::Data(_))
    ));
}

#[test]
fn functions_of_imported_packages_are_found() {
    let files = [
        file(
            "package main\n\nimport data.lib.terraform as tf\nimport data.lib.names\n\n\
             deny contains msg if {\n    some change in input.resource_changes\n    tf.is_created(change)\n    \
             msg := names.of(change)\n}\n\n\
             deny_mocked contains \"mocked\" if tf.is_created({}) with data.lib.terraform.is_created as true\n",
        ),
        file(
            "package lib.terraform\n\nis_created(change) if \"create\" in change.change.actions\n",
        ),
        file("package lib.names\n\nof(change) := change.address\n"),
    ];
    let findings = evaluate(&files, &[], PLAN, &[], &limits()).unwrap();
    let mut messages: Vec<String> = findings.into_iter().map(|f| f.message).collect();
    messages.sort();
    assert_eq!(messages, ["aws_s3_bucket.logs", "mocked"]);
}

#[test]
fn a_policy_that_cannot_be_read_names_its_place() {
    let message = error("package main\n\ndeny contains msg if {\n    msg := \n}\n");
    assert!(message.starts_with("deny.rego:"), "{message}");
    let message = error("package main\n\ndeny[msg] {\n    msg := \"old syntax\"\n}\n");
    assert!(message.contains("deny.rego:3"), "{message}");
    assert!(message.contains("Rego v1"), "{message}");
    assert!(matches!(on_plan("", PLAN), Err(EvalError::Policy(_))));
    assert_eq!(
        evaluate(&[], &[], PLAN, &[], &limits()),
        Err(EvalError::NoPolicies)
    );
}

#[test]
fn a_function_that_reaches_outside_is_an_error_even_if_it_is_not_called() {
    for call in [
        "http.send({\"method\": \"get\", \"url\": \"http://127.0.0.1/\"})",
        "time.now_ns()",
        "opa.runtime()",
        "net.lookup_ip_addr(\"example.com\")",
        "nothing_like_it(1)",
    ] {
        for body in [
            format!("false\n    x := {call}\n    x == 1"),
            format!("not {call}"),
            format!("count([x | x := {call}]) > 0"),
            format!("every x in [1] {{ x == {call} }}"),
            format!("true with input as {call}"),
        ] {
            let text = format!("package main\n\ndeny contains \"m\" if {{\n    {body}\n}}\n");
            let found = on_plan(&text, PLAN);
            assert!(
                matches!(found, Err(EvalError::UnknownFunction { .. })),
                "{body}: {found:?}"
            );
        }
    }
    let text = "package main\n\ndeny contains \"m\" if startswith(\"a\")\n";
    assert!(
        error(text).contains("deny.rego:3: there is no function `startswith` with 1 arguments")
    );
}

#[test]
fn functions_fail_as_they_do_in_conftest() {
    // A value that is not there, or of another type, violates nothing.
    for body in [
        "startswith(input.resource_changes[0].change.after.size, \"x\")",
        "count(null) > 0",
        "to_number(\"many\") > 0",
        "json.unmarshal(\"{\") == 1",
        "input.nothing.there == 1",
    ] {
        let text = format!("package main\n\ndeny contains \"m\" if {body}\n");
        assert_eq!(found(&text), Vec::<String>::new(), "{body}");
        let text = format!("package main\n\ndeny contains \"m\" if not {body}\n");
        assert_eq!(found(&text), ["! main.deny: m"], "{body}");
    }
    // A message with a mistake is still a message.
    let text = "package main\n\ndeny contains sprintf(\"%d buckets\", [\"two\"]) if true\n";
    assert_eq!(found(text), ["! main.deny: %!d(string=two) buckets"]);
}

#[test]
fn values_that_only_this_evaluator_cannot_handle_silence_no_rule() {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let plan = serde_json::json!({"name": "public-\u{0}", "policy": deep}).to_string();
    for body in [
        "glob.match(\"[a-cx]*\", [], input.name)",
        "json.unmarshal(input.policy)",
        "json.is_valid(input.policy)",
        "not json.unmarshal(input.policy)",
        "f(input.policy)",
        "count([x | x := json.unmarshal(input.policy)]) > 0",
        "regex.match(\"(\", input.name)",
        "regex.match(\"[a-z&&b]\", input.name)",
        "not regex.match(\"[a[b]]\", input.name)",
    ] {
        let text = format!(
            "package main\n\nf(x) if json.unmarshal(x)\n\nf(x) if x != 1\n\ndeny contains \"m\" if {body}\n"
        );
        let found = on_plan(&text, &plan);
        assert!(
            matches!(found, Err(EvalError::Function(_))),
            "{body}: {found:?}"
        );
    }
}

#[test]
fn results_that_are_no_messages_are_errors() {
    for (rule, problem) in [
        ("deny if true", "deny contains message if"),
        ("deny := \"x\"", "no set of messages"),
        ("deny := {\"msg\": \"x\"}", "no set of messages"),
        ("deny contains 5 if true", "neither a text nor an object"),
        (
            "warn contains [\"x\"] if true",
            "neither a text nor an object",
        ),
        (
            "deny contains {\"message\": \"x\"} if true",
            "no text `msg`",
        ),
        ("deny contains {\"msg\": 5} if true", "no text `msg`"),
    ] {
        let message = error(&format!("package main\n\n{rule}\n"));
        assert!(message.contains(problem), "{rule}: {message}");
    }
    // An empty message is a violation, and `false` is none.
    assert_eq!(
        found("package main\n\ndeny contains \"\" if true\n"),
        ["! main.deny: The rule gives no message."]
    );
    assert_eq!(
        found("package main\n\ndefault deny := false\n"),
        Vec::<String>::new()
    );
}

#[test]
fn an_error_of_one_rule_is_an_error_of_the_set() {
    let text = "package main\n\ndeny contains \"m\" if x == 1\n\nx := 1\n\nx := 2\n\nwarn contains \"w\" if true\n";
    let found = on_plan(text, PLAN);
    assert!(matches!(found, Err(EvalError::Failed(_))), "{found:?}");
}

#[test]
fn a_set_without_rules_and_a_plan_that_is_none_are_errors() {
    assert!(matches!(
        on_plan("package main\n\nallow if true\n", PLAN),
        Err(EvalError::NoRules(_))
    ));
    let text = "package main\n\ndeny contains \"m\" if true\n";
    for plan in ["", "{", "[]", "null", "{}{}"] {
        let found = on_plan(text, plan);
        assert!(matches!(found, Err(EvalError::Plan(_))), "{plan}");
    }
    let few = EvalLimits {
        input_bytes: 10,
        ..limits()
    };
    assert!(matches!(
        evaluate(&[file(text)], &[], PLAN, &[], &few),
        Err(EvalError::PlanTooLarge { limit: 10, .. })
    ));
}

#[test]
fn an_evaluation_ends_when_its_time_is_over() {
    let few = EvalLimits {
        time: Duration::from_millis(50),
        ..limits()
    };
    let many = "numbers.range(1, 1000)";
    for body in [
        format!(
            "count([1 | some a in {many}; some b in {many}; some c in {many}; a + b + c == 0]) > 0"
        ),
        format!(
            "not count([1 | some a in {many}; some b in {many}; some c in {many}; a + b + c == 0]) > 0"
        ),
        "f(1) == 1".to_owned(),
    ] {
        let text = format!(
            "package main\n\nf(x) := 1 if {{\n    some a in {many}\n    some b in {many}\n    some c in {many}\n    \
             a + b + c == x\n}}\n\nf(x) := 1 if x == 1\n\ndeny contains \"m\" if {body}\n"
        );
        let found = evaluate(&[file(&text)], &[], PLAN, &[], &few);
        assert_eq!(found, Err(EvalError::TooLong(few.time)), "{body}");
    }
}

#[test]
fn tests_of_policies_pass_fail_and_break() {
    let text = r#"package main

deny contains "public" if input.acl == "public-read"

test_public_is_denied if {
    print("acl", input.acl) with input as {"acl": "x"}
    count(deny) == 1 with input as {"acl": "public-read"}
}

test_private_is_denied if count(deny) == 1 with input as {"acl": "private"}

test_broken if {
    x == 1
}

x := 1

x := 2

todo_test_later if false
"#;
    let results = test(&[file(text)], &[], &limits()).unwrap();
    let [broken, failed, passed] = &results[..] else {
        panic!("three tests are expected: {results:?}");
    };
    assert_eq!(broken.rule, "main.test_broken");
    assert!(matches!(broken.outcome, TestOutcome::Broken(_)));
    assert_eq!(
        (failed.rule.as_str(), failed.place.as_str(), &failed.outcome),
        (
            "main.test_private_is_denied",
            "deny.rego:10",
            &TestOutcome::Failed
        )
    );
    assert_eq!(passed.outcome, TestOutcome::Passed);
    assert_eq!(passed.prints, ["deny.rego:6: acl x"]);
    assert_eq!(
        test(
            &[file("package main\n\ndeny contains \"m\" if true\n")],
            &[],
            &limits()
        ),
        Ok(Vec::new())
    );
}

/// Evaluates one policy on a plan with four changes. The second and the last one delete something.
fn messages_with_a_deletion(policy: &str) -> Result<Vec<String>, String> {
    let input = serde_json::json!({"resource_changes": [
        {"address": "a", "change": {"after": {"name": "one", "tags": {"team": "x"}}}},
        {"address": "b", "change": {"after": null}},
        {"address": "c", "change": {"after": {"name": "three", "tags": null}}},
        {"address": "d", "change": {"after": null}},
    ]});
    let files = [RegoFile {
        path: "main.rego".to_owned(),
        text: format!("package main\n\n{policy}\n"),
    }];
    let limits = EvalLimits::default();
    let found = evaluate(&files, &[], &input.to_string(), &[], &limits);
    let found = found.map_err(|error| error.to_string())?;
    Ok(found.into_iter().map(|finding| finding.message).collect())
}

/// The evaluator itself forgets all values of a rule when one is undefined.
#[test]
fn a_value_that_is_undefined_in_one_round_leaves_the_others() {
    for (policy, expected) in [
        (
            "deny contains change.change.after.name if some change in input.resource_changes",
            &["one", "three"][..],
        ),
        (
            "deny contains sprintf(\"%s: %s\", [\n  change.address, # why\n  change.change.after.name,\n]) if {\n  some change in input.resource_changes\n}",
            &["a: one", "c: three"],
        ),
        (
            "name_of[change.address] := change.change.after.name if some change in input.resource_changes\n\
             deny contains text if some text in name_of",
            &["one", "three"],
        ),
        (
            "by_name[change.change.after.name] := change.address if {\n  some change in input.resource_changes\n}\n\
             deny contains sprintf(\"%s %s\", [name, address]) if some name, address in by_name",
            &["one a", "three c"],
        ),
        (
            "name_of(change) := change.change.after.name if true\nelse := \"none\" if change.address == \"b\"\n\
             deny contains name_of(change) if some change in input.resource_changes",
            &["none", "one", "three"],
        ),
        (
            "deny contains input.resource_changes[_].change.after.name",
            &["one", "three"],
        ),
        (
            "names := {\n  change.change.after.name | some change in input.resource_changes\n}\n\
             of(changes) := changes[0].change.after.name\n\
             deny contains concat(\",\", sort(names | {of(input.resource_changes)}))",
            &["one,three"],
        ),
        (
            "deny contains (name) if { some change in input.resource_changes; name := change.change.after.name }",
            &["one", "three"],
        ),
        (
            "deny contains concat(\",\", [name | some change in input.resource_changes; name := change.change.after.name; name != \"x\"]) if true",
            &["one,three"],
        ),
        (
            "deny contains team if { some change in input.resource_changes; some team in change.change.after.tags }",
            &["x"],
        ),
        (
            "deny contains change.address if {\n  some change in input.resource_changes\n  every team in change.change.after.tags { team == \"x\" }\n}",
            &["a"],
        ),
        (
            "deny contains change.change.after.name if {\n  some change in input.resource_changes\n  change.address != \"c\"\n}",
            &["one"],
        ),
        (
            "deny contains \"quoted\" if \"three\" in [change.change.after.name | some change in input.resource_changes]\n\
             deny contains `raw` if input.resource_changes[0].address == `a`\n\
             deny contains text if \"a\" == input.resource_changes[0].address\ntext := \"text\"",
            &["quoted", "raw", "text"],
        ),
        (
            "names[\"x\"][change.address] contains change.change.after.name if some change in input.resource_changes\n\
             deny contains concat(\" \", [key, name]) if { some key, all in names.x; some name in all }",
            &["a one", "c three"],
        ),
        (
            "names contains input.resource_changes[_].change.after.name if true\ndeny contains \"two\" if count(names) == 2",
            &["two"],
        ),
        (
            "deny contains {\"msg\": change.change.after.name, \"resource\": change.address} if {\n  some change in input.resource_changes\n}",
            &["one", "three"],
        ),
    ] {
        let mut found = messages_with_a_deletion(policy).unwrap_or_else(|error| vec![error]);
        found.sort();
        assert_eq!(found, expected, "{policy}");
    }
}

/// The parser would end the process, or would need hours.
#[test]
fn expressions_that_are_nested_too_deeply_are_an_error() {
    for (open, close) in [
        ("[", "]"),
        ("[1, ", "]"),
        ("{", "}"),
        ("{\"a\": ", "}"),
        ("{\"a\": [", "]}"),
        ("[x | x := ", "]"),
        ("(", ")"),
        ("count(", ")"),
        ("input[", "]"),
        ("- ", ""),
        ("1\n+ ", ""),
    ] {
        for close in [close, ""] {
            let (open, close) = (open.repeat(10_000), close.repeat(10_000));
            let text = format!("package main\n\ndeny contains \"m\" if {open}1{close} == 1\n");
            let found = on_plan(&text, PLAN);
            let Err(EvalError::TooDeep { place, .. }) = found else {
                panic!("{}: {found:?}", &open[..4]);
            };
            assert!(place.starts_with("deny.rego:"), "{place}");
        }
    }
}

#[test]
fn expressions_as_deep_as_the_limits_are_evaluated() {
    let arrays = format!("{}1{}", "[1, ".repeat(450), "]".repeat(450));
    let first = format!("{}1{}", "[{\"a\": ".repeat(5), "}]".repeat(5));
    let sum = format!("1{}", " + 1".repeat(450));
    let signs = format!("count([{}])", "-1, ".repeat(2000));
    let text = format!(
        "package main\n\ndeny contains \"a\" if {arrays}[0] == 1\ndeny contains \"b\" if {first}[0].a[0].a\n\
         deny contains \"c\" if {sum} == 451\ndeny contains \"d\" if {signs} == 2000\n"
    );
    assert_eq!(
        found(&text),
        [
            "! main.deny: a",
            "! main.deny: b",
            "! main.deny: c",
            "! main.deny: d",
        ]
    );
}

#[test]
fn a_mark_of_the_byte_order_and_ends_of_lines_of_windows_are_read() {
    let text = "\u{feff}package main\r\n\r\ndeny contains \"m\" if true\r\n";
    assert_eq!(found(text), ["! main.deny: m"]);
}
