use proptest::prelude::*;

use super::*;
use crate::testing::fixed_seed;

fn account(number: u32) -> AccountId {
    AccountId::new(number).unwrap()
}

fn files(rules: &str, groups: &str) -> BTreeMap<String, Vec<u8>> {
    BTreeMap::from([
        (
            AccessControl::RULES_FILE.to_owned(),
            rules.as_bytes().to_vec(),
        ),
        (
            AccessControl::GROUPS_FILE.to_owned(),
            groups.as_bytes().to_vec(),
        ),
    ])
}

/// Reads files without problems.
fn access(rules: &str, groups: &str) -> AccessControl {
    let (access, findings) = AccessControl::read(&files(rules, groups));
    assert_eq!(findings.lines(), [""; 0]);
    access
}

fn lines(rules: &str, groups: &str) -> Vec<String> {
    AccessControl::read(&files(rules, groups)).1.lines()
}

fn own(number: u32) -> AllUsersRef {
    AllUsersRef::User(account(number))
}

fn ask(
    access: &AccessControl,
    asks: u32,
    permission: RefPermission,
    name: AllUsersRef,
) -> AccessVerdict {
    access.verdict(&access.member(account(asks)), permission, name)
}

#[test]
fn a_new_installation_gives_everybody_their_own_branch_and_nobody_more() {
    let access = AccessControl::first();
    for permission in [RefPermission::Read, RefPermission::Push] {
        let verdict = |name| ask(&access, 1_000_856, permission, name);
        assert_eq!(verdict(own(1_000_856)), AccessVerdict::Granted);
        assert_eq!(verdict(own(1_000_857)), AccessVerdict::Undecided);
        assert_eq!(verdict(AllUsersRef::UserDefault), AccessVerdict::Undecided);
        assert_eq!(verdict(AllUsersRef::ExternalIds), AccessVerdict::Undecided);
    }
    assert_eq!(access.administrators().count(), 0);
    let member = access.member(account(1_000_856));
    assert_eq!(
        access.readable_names(&member),
        Some(BTreeSet::from([own(1_000_856)]))
    );
}

#[test]
fn the_first_rules_have_no_problem_and_are_those_of_the_format() {
    let rules = AccessControl::FIRST_RULES;
    assert_eq!(lines(rules, ""), [""; 0]);
    assert!(rules.starts_with(
        "[access \"refs/users/${shardeduserid}\"]\n\
         \texclusiveGroupPermissions = read push submit\n\
         \tread = group Registered Users\n\
         \tpush = group Registered Users\n\
         \tlabel-Code-Review = -2..+2 group Registered Users\n\
         \tsubmit = group Registered Users\n"
    ));
}

#[test]
fn members_of_included_groups_have_what_the_group_has() {
    let access = access(
        "[capability]\nadministrateServer = group Administrators\naccessDatabase = group Backup\n",
        "[group \"Administrators\"]\nmember = 5\ninclude = group Leads\n[group \"Leads\"]\nmember = 6\n\
         [group \"Backup\"]\nmember = 7\n",
    );
    let has = |number, capability| access.has(&access.member(account(number)), capability);
    for number in [5, 6] {
        assert!(has(number, Capability::AdministrateServer));
        assert!(has(number, Capability::ModifyAccount));
        assert!(!has(number, Capability::AccessDatabase));
    }
    assert!(has(7, Capability::AccessDatabase));
    assert!(!has(7, Capability::ModifyAccount));
    assert!(!has(8, Capability::AdministrateServer));
    let administrators: Vec<AccountId> = access.administrators().collect();
    assert_eq!(administrators, [account(5), account(6)]);
    let member = access.member(account(6));
    let groups: Vec<&str> = member.groups().collect();
    assert_eq!(
        groups,
        [
            "Administrators",
            "Anonymous Users",
            "Leads",
            "Registered Users"
        ]
    );
}

#[test]
fn the_most_specific_section_decides() {
    let access = access(
        "[access \"refs/users/*\"]\nread = group A\npush = group A\n\
         [access \"^refs/users/[0-9]{2}/.*\"]\nread = deny group A\n\
         [access \"refs/users/00/*\"]\nread = group A\nread = deny group B\n\
         [access \"refs/users/00/100\"]\nread = deny group A\n\
         [access \"refs/users/05/*\"]\nexclusiveGroupPermissions = push\npush = group B\n\
         [access \"refs/users/06/*\"]\nread = group A\n\
         [access \"^refs/users/06/.*\"]\nread = block group A\n",
        "[group \"A\"]\nmember = 1\nmember = 2\n[group \"B\"]\nmember = 2\n",
    );
    let read = |asks, of| ask(&access, asks, RefPermission::Read, own(of));
    let push = |asks, of| ask(&access, asks, RefPermission::Push, own(of));
    assert_eq!(read(1, 7), AccessVerdict::Granted);
    assert_eq!(read(1, 200), AccessVerdict::Granted);
    assert_eq!(read(2, 200), AccessVerdict::Refused, "deny before allow");
    assert_eq!(read(1, 100), AccessVerdict::Refused);
    assert_eq!(read(3, 100), AccessVerdict::Undecided);
    assert_eq!(push(1, 105), AccessVerdict::Refused, "an exclusive section");
    assert_eq!(push(2, 105), AccessVerdict::Granted);
    assert_eq!(push(3, 105), AccessVerdict::Refused);
    assert_eq!(push(1, 100), AccessVerdict::Granted);
    assert_eq!(read(1, 106), AccessVerdict::Refused, "a broader block");
    assert_eq!(
        ask(&access, 1, RefPermission::Read, AllUsersRef::UserDefault),
        AccessVerdict::Granted
    );
    let member = access.member(account(1));
    assert_eq!(access.readable_names(&member), None);
    let names = access.readable_names(&access.member(account(3)));
    assert_eq!(names, Some(BTreeSet::new()));
}

#[test]
fn problems_of_rules_have_lines_and_ways_out() {
    let rules = "[access \"refs/users/*\"]\n\
         read = group Opertors\n\
         read = Operators\n\
         push = +force group Operators\n\
         puhs = group Operators\n\
         create = group Operators\n\
         [access \"users/*\"]\n\
         read = group Operators\n\
         [access \"refs/us*rs/*\"]\n\
         [access \"refs/users/${username}\"]\n\
         [access \"^refs/(\"]\n\
         [access \"^refs/users/${shardeduserid}\"]\n\
         [access \"refs/meta/*\"]\n\
         [capability]\n\
         accessDatabse = group Operators\n\
         accessDatabase = group Registered Users\n\
         accessDatabase = Operators\n\
         modifyAccount = group Nobody\n\
         [access]\n\
         inheritFrom = All-Projects\n";
    assert_eq!(
        lines(rules, "[group \"Operators\"]\n"),
        [
            "error: project.config:7: `users/*` is not a pattern of refs; begin with `refs/`, or with `^refs/` for a regular expression",
            "error: project.config:9: `refs/us*rs/*` is not a pattern of refs; write `*` at the end, after a `/`, and no variable with it",
            "error: project.config:10: `refs/users/${username}` is not a pattern of refs; the only variable is `${shardeduserid}`, once; `*` stands at the end",
            "error: project.config:11: `^refs/(` is not a regular expression; correct or shorten it; `^refs/users/.*` is one",
            "error: project.config:12: `^refs/users/${shardeduserid}` has a variable in a regular expression; use variables in names without `^`",
            "error: project.config:2: there is no group `Opertors`; did you mean `Operators`?",
            "error: project.config:3: `Operators` is not a rule; write `group NAME`, with `deny` or `block` in front to forbid it",
            "error: project.config:4: `+force group Operators` is not a rule; write `group NAME`, with `deny` or `block` in front to forbid it",
            "error: project.config:15: unknown capability `accessDatabse`; did you mean `accessDatabase`?",
            "error: project.config:16: every account is in `Registered Users`, and would have `accessDatabase`; write a group of groups.config",
            "error: project.config:17: `Operators` names no group; write `group NAME`",
            "error: project.config:18: there is no group `Nobody`; add it to groups.config",
            "warning: project.config:13: rules for `refs/meta/*` have no effect; give a capability: `accessDatabase`, or `administrateServer` for refs/meta/config",
            "warning: project.config:5: unknown key `puhs`; did you mean `push`?",
            "warning: project.config:6: `create` has no effect; branches come and go with their accounts: `lockkeeper accounts create` and `delete`",
            "warning: project.config:20: unknown section `access`; use one of `access \"refs/…\"`, `capability`",
        ]
    );
}

#[test]
fn problems_of_groups_have_lines_and_ways_out() {
    let groups = "member = 4\n\
         [group \"A\"]\n\
         member = jdoe\n\
         include = A\n\
         include = team github.com/acme/ops\n\
         include = group Registered Users\n\
         include = group Leds\n\
         membr = 5\n\
         [group \"Leads\"]\n\
         [group \"Registered Users\"]\n\
         [group]\n\
         [groups \"A\"]\n\
         [group \" x\"]\n";
    let include =
        "write `group NAME`; teams of a forge and groups of a provider are not supported yet";
    let number = "not a number from 1 to 2147483647 in plain digits without leading zeros; write the number of an account";
    let name = "is not the name of a group; write `[group \"NAME\"]` with a name of 1 to 100 characters in one line";
    assert_eq!(
        lines("", groups),
        [
            "error: groups.config:10: `Registered Users` is there already, with every account; choose another name".to_owned(),
            format!("error: groups.config:11: `` {name}"),
            format!("error: groups.config:13: ` x` {name}"),
            format!("error: groups.config:3: `jdoe` is {number}"),
            format!("error: groups.config:4: `A` cannot be included; {include}"),
            format!("error: groups.config:5: `team github.com/acme/ops` cannot be included; {include}"),
            "error: groups.config:6: `Registered Users` cannot be included: every account is in it; name the members, or use the group itself in the rules".to_owned(),
            "error: groups.config:7: there is no group `Leds`; did you mean `Leads`?".to_owned(),
            "warning: groups.config:12: unknown section `groups`; did you mean `group`?".to_owned(),
            "warning: groups.config:1: `member` is in no section; use one of `group`".to_owned(),
            "warning: groups.config:8: unknown key `membr`; did you mean `member`?".to_owned(),
        ]
    );
}

#[test]
fn circles_and_long_chains_are_refused() {
    let circle =
        "[group \"A\"]\ninclude = group B\n[group \"B\"]\ninclude = group A\n[group \"C\"]\n";
    assert_eq!(
        lines("", circle),
        [
            "error: groups.config: groups include each other in a circle, or more than 20 deep: `A`, `B`; remove an `include` of these"
        ]
    );
    let chain = |many: usize| -> String {
        let links = (0..many).map(|n| format!("[group \"g{n}\"]\ninclude = group g{}\n", n + 1));
        links.collect::<String>() + &format!("[group \"g{many}\"]\n")
    };
    assert_eq!(lines("", &chain(19)), [""; 0]);
    assert_eq!(lines("", &chain(20)).len(), 1);
}

#[test]
fn rights_that_would_have_no_effect_are_refused() {
    let mut files = files("", "");
    files.insert(AccessControl::RIGHTS_FILE.to_owned(), b"".to_vec());
    assert_eq!(
        AccessControl::read(&files).1.lines(),
        [
            "error: rights.config: this version has no rights that are kept here; remove the file; docs/permissions.md says where rights are set"
        ]
    );
}

#[test]
fn members_are_added_and_removed_in_place() {
    let before =
        "# who does what\n[group \"A\"]\n\tmember = 5 # John\n\tinclude = group B\n[group \"B\"]\n";
    let mut text = ConfigText::parse(before.as_bytes()).unwrap();
    AccountGroups::add_member(&mut text, "A", account(5)).unwrap();
    assert_eq!(text.as_str(), before);
    AccountGroups::add_member(&mut text, "A", account(6)).unwrap();
    AccountGroups::add_member(&mut text, "New", account(6)).unwrap();
    assert_eq!(
        text.as_str(),
        "# who does what\n[group \"A\"]\n\tmember = 5 # John\n\tmember = 6\n\tinclude = group B\n[group \"B\"]\n\
         [group \"New\"]\n\tmember = 6\n"
    );
    assert!(AccountGroups::remove_member(&mut text, "A", account(6)).unwrap());
    assert!(!AccountGroups::remove_member(&mut text, "A", account(6)).unwrap());
    assert!(AccountGroups::remove_member(&mut text, "New", account(6)).unwrap());
    assert_eq!(text.as_str(), format!("{before}[group \"New\"]\n"));
    assert!(AccountGroups::add_member(&mut text, "Registered Users", account(6)).is_err());
}

/// A section: its pattern, whether it is exclusive, and rules with their action and their group.
type ModelSection = (usize, bool, Vec<(u8, usize)>);

/// Rules as they are described: written down again without any of the code above.
fn model(rules: &[ModelSection], memberships: [bool; 2], of: u32) -> AccessVerdict {
    let mut verdict = AccessVerdict::Undecided;
    // The patterns of the property test, the most specific first.
    for pattern in 0..3 {
        let fits = match pattern {
            0 => of == 105,
            1 => of % 100 == 5,
            _ => true,
        };
        for (_, exclusive, rules) in rules.iter().filter(|(at, ..)| *at == pattern && fits) {
            let actions: Vec<u8> = rules
                .iter()
                .filter(|(_, group)| memberships[*group])
                .map(|(action, _)| *action)
                .collect();
            if actions.contains(&2) {
                return AccessVerdict::Refused;
            }
            if verdict == AccessVerdict::Undecided && actions.contains(&1) {
                verdict = AccessVerdict::Refused;
            } else if verdict == AccessVerdict::Undecided && actions.contains(&0) {
                verdict = AccessVerdict::Granted;
            }
            if *exclusive {
                return if verdict == AccessVerdict::Undecided {
                    AccessVerdict::Refused
                } else {
                    verdict
                };
            }
        }
    }
    verdict
}

proptest! {
    #![proptest_config(fixed_seed())]

    #[test]
    fn a_verdict_is_that_of_the_description(
        sections in proptest::collection::btree_map(
            0_usize..3,
            (any::<bool>(), proptest::collection::vec((0_u8..3, 0_usize..2), 0..4)),
            0..4,
        ),
        memberships in any::<[bool; 2]>(),
        of in proptest::sample::select(vec![105_u32, 205, 7]),
    ) {
        let patterns = ["refs/users/05/105", "refs/users/05/*", "refs/users/*"];
        let mut rules = String::new();
        for (at, (exclusive, own)) in &sections {
            rules.extend(["[access \"", patterns[*at], "\"]\n"]);
            if *exclusive {
                rules += "exclusiveGroupPermissions = read\n";
            }
            for (action, group) in own {
                let action = ["", "deny ", "block "][usize::from(*action)];
                rules.extend(["read = ", action, "group ", ["A", "B"][*group], "\n"]);
            }
        }
        let mut groups = "[group \"A\"]\n".to_owned();
        groups += if memberships[0] { "member = 9\n" } else { "" };
        groups += "[group \"B\"]\n";
        groups += if memberships[1] { "member = 9\n" } else { "" };
        let access = access(&rules, &groups);
        let sections: Vec<_> = sections.into_iter().map(|(at, (exclusive, own))| (at, exclusive, own)).collect();
        let expected = model(&sections, memberships, of);
        let verdict = ask(&access, 9, RefPermission::Read, own(of));
        prop_assert_eq!(verdict, expected, "{}", rules);
        // The names are everything that is permitted.
        if let Some(names) = access.readable_names(&access.member(account(9))) {
            prop_assert!(verdict != AccessVerdict::Granted || names.contains(&own(of)));
        }
    }

    #[test]
    fn no_file_makes_it_panic(rules in "(\\[access \"[re^fs/*(${}]{0,9}\"\\]\n|read = .{0,9}\n|.{0,9}\n){0,6}", groups in "(\\[group \"[AB]\"\\]\n|include = group [AB]\n|member = [0-9]{0,3}\n|.{0,9}\n){0,8}") {
        let (access, _) = AccessControl::read(&files(&rules, &groups));
        let member = access.member(account(5));
        let _ = access.verdict(&member, RefPermission::Read, own(5));
    }
}
