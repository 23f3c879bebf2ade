//! Changes of a plan, resource by resource, from the machine-readable form of its file.

use super::plan::PlanCounts;

/// Effect of a plan on one resource. The order is that of the list: losses come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlannedAction {
    /// The object is destroyed.
    Destroy,
    /// The object is destroyed and another one is created, in either order.
    Replace,
    /// An action that this version of Lockkeeper does not know.
    Unknown,
    /// The object stays, and the tool no longer manages it.
    Forget,
    /// The object stays unmanaged, and another one is created in its place.
    ReplaceForgotten,
    /// The object is changed in place.
    Update,
    /// An object is created.
    Create,
    /// An existing object comes under management.
    Import,
    /// The object gets another address.
    Move,
    /// A data source is read during the apply.
    Read,
    /// An action of a provider is invoked (Terraform 1.14).
    Invoke,
}

impl PlannedAction {
    /// All actions, in the order of the list.
    pub const ALL: [Self; 11] = [
        Self::Destroy,
        Self::Replace,
        Self::Unknown,
        Self::Forget,
        Self::ReplaceForgotten,
        Self::Update,
        Self::Create,
        Self::Import,
        Self::Move,
        Self::Read,
        Self::Invoke,
    ];

    /// Returns the verb for people.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Destroy => "destroy",
            Self::Replace => "replace",
            Self::Unknown => "change in an unknown way",
            Self::Forget => "forget",
            Self::ReplaceForgotten => "forget and create",
            Self::Update => "update",
            Self::Create => "create",
            Self::Import => "import",
            Self::Move => "move",
            Self::Read => "read",
            Self::Invoke => "invoke",
        }
    }

    /// Returns true if people have to look twice, because the action loses an object or is unknown.
    pub fn is_marked(self) -> bool {
        matches!(
            self,
            Self::Destroy | Self::Replace | Self::Unknown | Self::Forget | Self::ReplaceForgotten
        )
    }
}

/// An entry of the list. It has no values, so that nothing sensitive can be among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceChange {
    /// Address of the resource, for example `module.net.aws_vpc.main["a"]`.
    pub address: String,
    /// Key of a deposed object, if the change concerns one.
    pub deposed: Option<String>,
    /// Address before a move.
    pub previous: Option<String>,
    /// Effect of the plan on the resource.
    pub action: PlannedAction,
    /// True if the object is imported first.
    pub imported: bool,
}

/// All changes of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanChanges {
    /// Resources that the text of the plan shows, in the order of the file.
    pub resources: Vec<ResourceChange>,
    /// Number of outputs that change.
    pub outputs: u32,
}

impl PlanChanges {
    /// Returns true if an apply would change neither objects nor outputs.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.outputs == 0
    }

    /// Returns the number of entries with an action.
    pub fn number(&self, action: PlannedAction) -> usize {
        self.resources
            .iter()
            .filter(|change| change.action == action)
            .count()
    }

    /// Returns the numbers of the `Plan:` line. A replacement counts as one to add and one to destroy. An import
    /// counts twice if the object changes as well.
    pub fn counts(&self) -> PlanCounts {
        let number = |action| u32::try_from(self.number(action)).unwrap_or(u32::MAX);
        let (replace, forgotten) = (
            number(PlannedAction::Replace),
            number(PlannedAction::ReplaceForgotten),
        );
        let imported = self
            .resources
            .iter()
            .filter(|change| change.imported)
            .count();
        PlanCounts {
            add: number(PlannedAction::Create)
                .saturating_add(replace)
                .saturating_add(forgotten),
            change: number(PlannedAction::Update),
            destroy: number(PlannedAction::Destroy).saturating_add(replace),
            import: u32::try_from(imported).unwrap_or(u32::MAX),
            forget: number(PlannedAction::Forget).saturating_add(forgotten),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacements_count_twice_and_what_is_read_or_moved_not_at_all() {
        let one = |action| ResourceChange {
            address: "a.b".to_owned(),
            deposed: None,
            previous: None,
            action,
            imported: action == PlannedAction::Import,
        };
        let all = PlanChanges {
            resources: PlannedAction::ALL.map(one).into(),
            outputs: 0,
        };
        assert_eq!(
            all.counts(),
            PlanCounts {
                add: 3,
                change: 1,
                destroy: 2,
                import: 1,
                forget: 2
            }
        );
        assert!(PlannedAction::ALL.is_sorted());
        assert!(
            PlanChanges::default().is_empty()
                && !PlanChanges {
                    outputs: 1,
                    ..PlanChanges::default()
                }
                .is_empty()
        );
    }
}
