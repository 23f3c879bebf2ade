use proptest::prelude::*;

use super::*;
use crate::testing::fixed_seed;

fn config(text: &str) -> ConfigText {
    ConfigText::parse(text.as_bytes()).unwrap()
}

fn watch(value: &str) -> Watch {
    value.parse().unwrap()
}

#[test]
fn watches_are_read() {
    let text = "[project \"foo\"]\nnotify = * [ALL_COMMENTS]\nnotify = branch:master [ALL_COMMENTS, NEW_PATCHSETS]\n\
                notify = \"label:\\\"a # b\\\" owner:self [SUBMITTED_CHANGES]\"\n[Project \"All-Projects\"] NOTIFY = []\n";
    let (watches, problems) = Watches::read(&config(text));
    assert_eq!(problems, []);
    let printed: Vec<String> = watches
        .iter()
        .flat_map(|(project, watches)| {
            watches
                .iter()
                .map(move |watch| format!("{project}: {watch}"))
        })
        .collect();
    assert_eq!(
        printed,
        [
            "All-Projects: * []",
            "foo: * [ALL_COMMENTS]",
            "foo: branch:master [NEW_PATCHSETS, ALL_COMMENTS]",
            "foo: label:\"a # b\" owner:self [SUBMITTED_CHANGES]",
        ]
    );
    assert_eq!(watches.len(), 4);
    assert!(Watches::read(&ConfigText::default()).0.is_empty());
}

#[test]
fn problems_have_lines_and_ways_out() {
    let text = "[project \"foo\"]\nnotify = label:#1 [ALL]\nnotify = * [APLIES]\nnotify = brnch:x [ALL]\nnotify\n\
                notfy = * [ALL]\n[project]\nnotify = * [ALL]\n[projects \"x\"]\nnotify = * [ALL]\n\
                [project \"x\"]\nnotify = * [ALL,]\nnotify = * [ALL] x\n";
    let (watches, problems) = Watches::read(&config(text));
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "line 2: `label:` has no types at its end; \
             write `<filter> [<types>]` such as `* [ALL]`, in double quotes if there is a `#` or `;`",
            "line 3: unknown type `APLIES`; did you mean `APPLIES`?",
            "line 4: unknown filter `brnch:`; did you mean `branch`?",
            "line 5: `notify` has no value; write `notify = value`, or remove the line",
            "line 6: unknown key `notfy`; did you mean `notify`?",
            "line 8: the watch names no project; write `[project \"github.com/owner/name\"]` above it",
            "line 10: unknown section `projects`; did you mean `project`?",
            "line 12: unknown type ``; use one of `NEW_CHANGES`, `NEW_PATCHSETS`, `ALL_COMMENTS`, `SUBMITTED_CHANGES`, \
             `ABANDONED_CHANGES`, `PLANS`, `APPLIES`, `LOCKS`, `WAITS`, `APPLY_LOCKS`, `DRIFT`, `ALL`",
            "line 13: `* [ALL] x` has no types at its end; \
             write `<filter> [<types>]` such as `* [ALL]`, in double quotes if there is a `#` or `;`",
        ]
    );
    assert!(watches.is_empty());
}

#[test]
fn there_are_at_most_500_watches() {
    let line = "notify = * [ALL]\n";
    let mut text = config(&format!("[project \"x\"]\n{}", line.repeat(500)));
    assert_eq!(Watches::read(&text).1, []);
    let error = Watches::set_project(&mut text, "y", &[watch("* [ALL]")]).unwrap_err();
    assert_eq!(error.to_string(), "there are 501 watches; keep at most 500");
    // A file with more, such as an imported one, may get smaller.
    let mut text = config(&format!(
        "[project \"x\"]\n{}[project \"y\"]\n{line}",
        line.repeat(501)
    ));
    Watches::set_project(&mut text, "y", &[]).unwrap();
    assert_eq!(Watches::read(&text).0.len(), 501);
}

#[test]
fn values_of_another_system_stay_where_they_are() {
    let before = "[project \"x\"]\n\tnotify = file:^docs/.* [ALL]\n\tnotify = is:draft [ALL]\n\tnotify = message:a [ALL] # mine\n\
                  \tnotify = is:failed [ALL]\n";
    let mut text = config(before);
    Watches::set_project(
        &mut text,
        "x",
        &[watch("is:draft [ALL]"), watch("is:failed [ALL]")],
    )
    .unwrap();
    assert_eq!(text.as_str(), before);
    Watches::set_project(
        &mut text,
        "x",
        &[watch("is:draft [PLANS]"), watch("* [ALL]")],
    )
    .unwrap();
    let values = |text: &ConfigText| {
        let values = text.entries().filter_map(|entry| entry.value);
        values.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        values(&text),
        [
            "file:^docs/.* [ALL]",
            "message:a [ALL]",
            "is:draft [PLANS]",
            "* [ALL]"
        ]
    );
    assert!(text.as_str().contains("message:a [ALL] # mine\n"));
    Watches::set_project(&mut text, "x", &[]).unwrap();
    assert_eq!(values(&text), ["file:^docs/.* [ALL]", "message:a [ALL]"]);
}

#[test]
fn equal_filters_are_merged_and_other_values_are_left_alone() {
    let before = "# mine\n[project \"x\"] ; why\n  notify = *[ALL]\n  notify = is:draft  [PLANS,LOCKS] # drafts\n  other = 1\n[project \"y\"]\n  notify = [ALL]\n";
    let mut text = config(before);
    let (watches, _) = Watches::read(&text);
    for (project, watches) in watches.iter() {
        Watches::set_project(&mut text, project, watches).unwrap();
    }
    assert_eq!(text.as_str(), before);
    let mut set = |project, watches: &[&str]| {
        let watches: Vec<Watch> = watches.iter().map(|value| watch(value)).collect();
        Watches::set_project(&mut text, project, &watches).unwrap();
        text.to_string()
    };
    set("y", &[]);
    assert_eq!(
        set(
            "x",
            &["(is:draft) [PLANS]", "label:#1 [ALL]", "is:draft [LOCKS]"]
        ),
        "# mine\n[project \"x\"] ; why\n  notify = is:draft  [PLANS,LOCKS] # drafts\n  notify = \"label:#1 [ALL]\"\n  other = 1\n"
    );
    assert_eq!(
        set("x", &[]),
        "# mine\n[project \"x\"] ; why\n  other = 1\n"
    );
    let error = Watches::set_project(&mut text, "", &[]).unwrap_err();
    assert_eq!(error.to_string(), "the project has no name; write its name");
}

fn any_watch() -> impl Strategy<Value = Watch> {
    let filter = proptest::option::of(
        "(is:draft|-label:[a-c#;]{1,3}|dir:\"[a-c #;]{1,3}\")( OR is:failed)?",
    );
    let types =
        proptest::collection::btree_set(proptest::sample::select(NotifyType::ALL.to_vec()), 0..3);
    (filter, types).prop_map(|(filter, types)| Watch {
        filter: filter.map(|filter| filter.parse().unwrap()),
        types,
    })
}

proptest! {
    #![proptest_config(fixed_seed())]

    #[test]
    fn what_was_set_is_read(
        lists in proptest::collection::vec(
            ("[ab\"\\\\]{1,2}", proptest::collection::vec(any_watch(), 0..4)),
            0..5,
        ),
    ) {
        let mut text = config("# mine\n[project \"a\"]\n\tother = 1\n");
        let mut expected: BTreeMap<String, BTreeMap<Option<WatchFilter>, BTreeSet<NotifyType>>> = BTreeMap::new();
        for (project, watches) in lists {
            Watches::set_project(&mut text, &project, &watches).unwrap();
            let mut filters: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
            for watch in watches {
                filters.entry(watch.filter).or_default().extend(watch.types);
            }
            expected.insert(project, filters);
            prop_assert!(text.as_str().contains("\tother = 1\n"));
        }
        expected.retain(|_, filters| !filters.is_empty());
        let (watches, problems) = Watches::read(&config(text.as_str()));
        prop_assert_eq!(problems.len(), 1, "{:?}", problems);
        let read: BTreeMap<String, BTreeMap<_, _>> = watches
            .iter()
            .map(|(project, watches)| {
                let pairs = watches.iter().map(|watch| (watch.filter.clone(), watch.types.clone()));
                (project.to_owned(), pairs.collect())
            })
            .collect();
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn no_text_makes_it_panic(text in "(is:draft|\\[|\\]|ALL|[,* #a]){0,10}|.{0,20}") {
        if let Ok(watch) = text.parse::<Watch>() {
            prop_assert_eq!(watch.to_string().parse(), Ok(watch));
        }
    }
}
