//! How long, with which seed, on what.

use std::time::Duration;

use crate::support::db::Backend;

/// What a run is told, by the variable `LOCKKEEPER_CHAOS` or by a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// No round begins after this time.
    pub time: Duration,
    /// Decides every action and every fault.
    pub seed: u64,
    /// The first world; a world that failed is played again by naming it here.
    pub world: u64,
    /// How many worlds at most.
    pub worlds: u64,
    /// Rounds in one world.
    pub rounds: u64,
    /// Things that people do in one round.
    pub actions: usize,
    /// Faults in one round; half as many that concern mirrors come on top.
    pub faults: usize,
    /// Whether to wait for leases of killed servers to run out, and to pause servers for longer than a lease. Without
    /// it the lease of a killed server is ended by hand: who is dead cannot tell the difference.
    pub patient: bool,
    /// Which databases.
    pub databases: Vec<&'static str>,
}

impl Options {
    /// What is part of every test run.
    pub fn short() -> Self {
        Self {
            time: Duration::from_secs(20),
            seed: 3,
            world: 0,
            worlds: 1,
            rounds: 2,
            actions: 14,
            faults: 4,
            patient: false,
            databases: vec!["sqlite", "postgres"],
        }
    }

    /// A long run: `--seconds N --seed N --database sqlite|postgres|both --world N --worlds N --rounds N --actions N
    /// --faults N`.
    pub fn parse(text: &str) -> Self {
        let mut options = Self {
            time: Duration::from_mins(10),
            worlds: u64::MAX,
            rounds: 4,
            actions: 30,
            faults: 10,
            patient: true,
            ..Self::short()
        };
        let mut words = text.split_whitespace();
        while let Some(flag) = words.next() {
            let value = words
                .next()
                .unwrap_or_else(|| panic!("a value must follow {flag}"));
            options.set(flag, value);
        }
        options
    }

    fn set(&mut self, flag: &str, value: &str) {
        let number = || {
            value
                .parse::<u64>()
                .unwrap_or_else(|_| panic!("{flag} needs a number, not `{value}`"))
        };
        let count = || usize::try_from(number()).expect("a small number");
        match flag {
            "--seconds" => self.time = Duration::from_secs(number()),
            "--seed" => self.seed = number(),
            "--world" => self.world = number(),
            "--worlds" => self.worlds = number(),
            "--rounds" => self.rounds = number(),
            "--actions" => self.actions = count(),
            "--faults" => self.faults = count(),
            "--patient" => self.patient = number() > 0,
            "--database" => self.databases = databases(value),
            other => panic!(
                "{other} is not known; there are --seconds, --seed, --database, --world, --worlds, \
                             --rounds, --actions, --faults, --patient"
            ),
        }
    }

    /// Whether a database is asked for.
    pub fn wants(&self, backend: Backend) -> bool {
        self.databases.contains(&name(backend))
    }

    /// What plays one world again.
    pub fn again(&self, backend: Backend, world: u64) -> String {
        let Self {
            seed,
            rounds,
            actions,
            faults,
            ..
        } = self;
        let (database, patient) = (name(backend), u8::from(self.patient));
        format!(
            "make chaos ARGS=\"--seed {seed} --database {database} --world {world} --worlds 1 --rounds {rounds} \
             --actions {actions} --faults {faults} --patient {patient}\""
        )
    }
}

/// The word for a database.
pub fn name(backend: Backend) -> &'static str {
    match backend {
        Backend::Sqlite => "sqlite",
        Backend::Postgres => "postgres",
    }
}

fn databases(value: &str) -> Vec<&'static str> {
    match value {
        "sqlite" => vec!["sqlite"],
        "postgres" => vec!["postgres"],
        "both" => vec!["sqlite", "postgres"],
        other => panic!("--database is sqlite, postgres or both, not `{other}`"),
    }
}

#[test]
fn what_plays_a_world_again_is_read_as_it_was() {
    let options = Options::parse("--seconds 60 --seed 9 --database postgres --rounds 2");
    assert_eq!((options.time, options.seed), (Duration::from_mins(1), 9));
    let again = options.again(Backend::Postgres, 3);
    let read = Options::parse(again.split('"').nth(1).unwrap());
    assert_eq!(
        (read.seed, read.world, read.worlds, read.rounds),
        (9, 3, 1, 2)
    );
    assert!(read.wants(Backend::Postgres) && !read.wants(Backend::Sqlite) && read.patient);
}
