//! Reads the options of a chaos run: duration, seed, databases.

use std::time::Duration;

use crate::support::db::Backend;

/// Options of a run, from the variable `LOCKKEEPER_CHAOS` or from a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Time after which no new round begins.
    pub time: Duration,
    /// Seed that decides every action and every fault.
    pub seed: u64,
    /// Number of the first world. A world that failed is played again with its number here.
    pub world: u64,
    /// Maximum number of worlds.
    pub worlds: u64,
    /// Number of rounds in one world.
    pub rounds: u64,
    /// Number of actions of people in one round.
    pub actions: usize,
    /// Number of faults in one round. Half as many faults of mirrors are added.
    pub faults: usize,
    /// Number of races of each kind for accounts.
    pub races: usize,
    /// Number of deployments that exchange versions, 2 or 3.
    pub deployments: usize,
    /// True if the run waits until leases of killed servers expire, and pauses servers for longer than a lease.
    /// Otherwise the lease of a killed server is ended by hand; a dead server cannot tell the difference.
    pub patient: bool,
    /// Databases of the run.
    pub databases: Vec<&'static str>,
}

impl Options {
    /// Returns the options of the short run that is part of every test run.
    pub fn short() -> Self {
        Self {
            time: Duration::from_secs(20),
            seed: 3,
            world: 0,
            worlds: 1,
            rounds: 2,
            actions: 14,
            faults: 4,
            races: 1,
            deployments: 2,
            patient: false,
            databases: vec!["sqlite", "postgres"],
        }
    }

    /// Reads the options of a long run: `--seconds N --seed N --database sqlite|postgres|both --world N --worlds N
    /// --rounds N --actions N --faults N --races N --deployments 2|3`.
    pub fn parse(text: &str) -> Self {
        let mut options = Self {
            time: Duration::from_mins(10),
            worlds: u64::MAX,
            rounds: 4,
            actions: 30,
            faults: 10,
            races: 1_000,
            deployments: 3,
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
            "--races" => self.races = count(),
            "--deployments" => self.deployments = count(),
            "--patient" => self.patient = number() > 0,
            "--database" => self.databases = databases(value),
            other => panic!(
                "{other} is not known; there are --seconds, --seed, --database, --world, --worlds, \
                             --rounds, --actions, --faults, --races, --deployments, --patient"
            ),
        }
    }

    /// Returns the number of rounds in one world of deployments. All of them need the same wait for leases and downloads, so
    /// a short run has one.
    pub fn rounds_of_deployments(&self) -> u64 {
        if self.patient { self.rounds } else { 1 }
    }

    /// Returns true if the database was requested.
    pub fn wants(&self, backend: Backend) -> bool {
        self.databases.contains(&name(backend))
    }

    /// Returns the command that plays one world again.
    pub fn again(&self, backend: Backend, world: u64) -> String {
        let Self {
            seed,
            rounds,
            actions,
            faults,
            deployments,
            ..
        } = self;
        let (database, patient) = (name(backend), u8::from(self.patient));
        format!(
            "make chaos ARGS=\"--seed {seed} --database {database} --world {world} --worlds 1 --rounds {rounds} \
             --actions {actions} --faults {faults} --deployments {deployments} --patient {patient}\""
        )
    }
}

/// Returns the name of a database on the command line.
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
    assert_eq!(read.deployments, 3);
    assert!(read.wants(Backend::Postgres) && !read.wants(Backend::Sqlite) && read.patient);
}
