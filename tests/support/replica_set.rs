//! A replica set of a test's own, for fail-over: members are processes that can be killed, stopped,
//! stepped down and started again.

use std::time::Duration;

use mongodb::bson::{Bson, doc, oid::ObjectId};

use super::database::TestDatabase;
use super::mongod::{Mongod, Options, SET_NAME, initiate};
use super::poll::eventually;
use super::uri::Uri;

/// Several election timeouts of ten seconds on a machine that is busy with other tests.
const ELECTION_BOUND: Duration = Duration::from_secs(60);

/// An election timeout that is short enough for a quick test and long enough for a busy machine.
pub(crate) const QUICK_ELECTION: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct ReplicaSet {
    members: Vec<Mongod>,
}

impl ReplicaSet {
    /// So many members, with a quick election; one is primary when this returns.
    pub(crate) async fn start(count: usize) -> Self {
        let options = Options { election_timeout: QUICK_ELECTION, ..Options::replica_set() };
        Self::start_with(count, options).await
    }

    /// The same with other options: another election timeout, parameters, shifted clocks. Users are not
    /// supported here.
    pub(crate) async fn start_with(count: usize, options: Options) -> Self {
        assert!(options.replica_set && !options.auth, "members of a set without users");
        let starting = (0..count).map(|_| Mongod::start_bare(options.clone()));
        let members = futures::future::join_all(starting).await;
        let named = |(id, member): (usize, &Mongod)| -> Bson {
            let id = i32::try_from(id).expect("a few members");
            doc! { "_id": id, "host": member.address() }.into()
        };
        initiate(&members[0], members.iter().enumerate().map(named).collect()).await;
        let set = Self { members };
        set.primary().await;
        set.all_in().await;
        set
    }

    /// The connection string that names every member.
    pub(crate) fn uri(&self) -> String {
        self.parsed_uri().to_string()
    }

    /// A database of its own for a test.
    pub(crate) fn database(&self) -> TestDatabase {
        TestDatabase::on(&self.parsed_uri())
    }

    pub(crate) fn member(&self, index: usize) -> &Mongod {
        &self.members[index]
    }

    pub(crate) fn member_mut(&mut self, index: usize) -> &mut Mongod {
        &mut self.members[index]
    }

    /// The member that is primary. Waits for an election if there is none. Of two that say so, which
    /// happens for a moment after a partition, the later elected one.
    pub(crate) async fn primary(&self) -> usize {
        let mut clients = Vec::new();
        for member in &self.members {
            clients.push(member.client().await.database("admin"));
        }
        eventually(ELECTION_BOUND, "a primary", || async {
            let looks = clients.iter().map(|admin| {
                let look = admin.run_command(doc! { "hello": 1 });
                // A member that is down or stopped must not hold up the look at the others.
                tokio::time::timeout(Duration::from_millis(500), look.into_future())
            });
            let seen = futures::future::join_all(looks).await;
            let elected = |index: usize| -> Option<ObjectId> {
                let hello = seen[index].as_ref().ok()?.as_ref().ok()?;
                hello.get_bool("isWritablePrimary").unwrap_or(false).then(|| hello.get_object_id("electionId").ok())?
            };
            (0..seen.len())
                .filter_map(|index| elected(index).map(|election| (election, index)))
                .max()
                .map(|(_, index)| index)
                .ok_or(seen)
        })
        .await
    }

    /// SIGKILL for the primary; returns which member it was. Ask `primary()` for its successor.
    pub(crate) async fn kill_primary(&mut self) -> usize {
        let index = self.primary().await;
        self.members[index].kill();
        index
    }

    /// The primary steps down in an orderly way, and stands for no election for 10 s; returns which
    /// member it was.
    pub(crate) async fn step_down(&self) -> usize {
        let index = self.primary().await;
        let admin = self.members[index].client().await.database("admin");
        admin
            .run_command(doc! { "replSetStepDown": 10, "secondaryCatchUpPeriodSecs": 5 })
            .await
            .expect("step the primary down");
        index
    }

    /// Starts a killed or stopped member again, and waits until it takes part.
    pub(crate) async fn restart(&mut self, index: usize) {
        self.members[index].restart_bare().await;
        self.all_in().await;
    }

    /// Every running member is primary or secondary.
    async fn all_in(&self) {
        let primary = self.primary().await;
        let admin = self.members[primary].client().await.database("admin");
        eventually(ELECTION_BOUND, "every member to be primary or secondary", || async {
            let status = admin.run_command(doc! { "replSetGetStatus": 1 }).await;
            let states: Vec<i32> = status
                .iter()
                .flat_map(|status| status.get_array("members").into_iter().flatten())
                .filter_map(|member| member.as_document()?.get_i32("state").ok())
                .collect();
            let down = |state: &&i32| **state == 8;
            let settled = |state: &i32| matches!(state, 1 | 2 | 8);
            let running = states.iter().filter(|state| !down(state)).count();
            if states.iter().all(settled) && running * 2 > states.len() { Ok(()) } else { Err((states, status.err())) }
        })
        .await;
    }

    fn parsed_uri(&self) -> Uri {
        let hosts: Vec<String> = self.members.iter().map(Mongod::address).collect();
        Uri::parse(&format!("mongodb://{}/?replicaSet={SET_NAME}", hosts.join(",")))
    }
}
