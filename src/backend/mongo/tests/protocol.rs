use super::*;
use crate::lease::status::Phase;

#[tokio::test]
async fn a_writer_registers_looks_and_leaves() {
    for server in BOTH {
        let store = Store::ready(server).await;
        assert_eq!(store.init().await.unwrap(), Init::AlreadyThere);
        let lease = writer();
        let mut session = store.session().await.unwrap();
        let before = store.look_writer(&mut session, &lease.key).await.unwrap();
        assert!(!before.registered);

        store.register(&mut session, &lease).await.unwrap();
        store.register(&mut session, &lease).await.unwrap();
        let look = store.look_writer(&mut session, &lease.key).await.unwrap();
        assert!(look.registered && look.fsck.is_none());
        assert_eq!(look.generation, Some(0));
        let other = LeaseKey { owner: "other".to_owned(), ..lease.key.clone() };
        assert!(!store.look_writer(&mut session, &other).await.unwrap().registered);

        let record = store.only(&lease.key.id).await;
        assert!(!record.malformed && record.age_ms.unwrap() >= 0);
        assert_eq!(record.owner.as_deref(), Some(lease.key.owner.as_str()));
        let ours = record.ours.unwrap();
        assert_eq!(ours.holder, Some(lease.holder.clone()));
        assert_eq!((ours.acquired, ours.phase), (record.heartbeat, None));

        assert!(!store.release(&mut session, &other).await.unwrap());
        assert!(store.release(&mut session, &lease.key).await.unwrap());
        assert!(!store.release(&mut session, &lease.key).await.unwrap());
        store.close().await;
    }
}

#[tokio::test]
async fn an_fsck_installs_looks_is_granted_and_leaves() {
    for server in BOTH {
        let store = Store::ready(server).await;
        let lease = fsck();
        let mut session = store.session().await.unwrap();
        assert!(store.peek().await.unwrap().is_none());
        for _ in 0..2 {
            let install = store.install(&mut session, &lease).await.unwrap();
            assert!(matches!(install, Install::Mine), "{install:?}");
        }
        let mut others = store.session().await.unwrap();
        match store.install(&mut others, &fsck()).await.unwrap() {
            Install::Held(held) => {
                assert_eq!(held.owner, Some(lease.key.owner.clone()));
                assert!(held.age_ms.unwrap() >= 0);
                assert_eq!(held.ours.unwrap().holder, Some(lease.holder.clone()));
            }
            Install::Mine => panic!("two fsck leases"),
        }
        let look = store.look_fsck(&mut session, &lease.key, Detail::Full).await.unwrap();
        assert_eq!(look.fsck.unwrap().ours.unwrap().phase, Some(Phase::Draining));
        assert_eq!(look.generation, Some(0));
        assert!(look.writers.is_empty() && !look.foreign_fences);

        let before = store.peek().await.unwrap().unwrap().pulse;
        let grant = store.grant(&mut session, &lease.key, 0, true).await.unwrap();
        assert_eq!(grant, Grant::Granted(1));
        assert_ne!(store.peek().await.unwrap().unwrap().pulse, before);
        let look = store.refresh_look().await.unwrap();
        assert_eq!(look.fsck, Some((Some(lease.key.owner.clone()), Some(Phase::Exclusive))));
        assert_eq!(look.generation, Some(1));

        assert!(store.release(&mut session, &lease.key).await.unwrap());
        assert!(store.refresh_look().await.unwrap().fsck.is_none());
        store.close().await;
    }
}

#[tokio::test]
async fn a_grant_that_is_repeated_raises_once() {
    for server in BOTH {
        let store = Store::ready(server).await;
        let lease = fsck();
        let mut session = store.session().await.unwrap();
        store.install(&mut session, &lease).await.unwrap();
        // The second with the generation of before, the third with the one that was read back.
        for generation in [0, 0, 1] {
            let grant = store.grant(&mut session, &lease.key, generation, true).await.unwrap();
            assert_eq!(grant, Grant::Granted(1));
        }
        // From a session that knows nothing, as after a restart of the connection.
        let mut fresh = store.session().await.unwrap();
        let grant = store.grant(&mut fresh, &lease.key, 0, true).await.unwrap();
        assert_eq!(grant, Grant::Granted(1));
        assert_eq!(store.get(LAYOUT_ID).await, Some(doc! { "_id": "layout", "generation": 1 }));
        store.close().await;
    }
}

#[tokio::test]
async fn a_half_done_grant_on_a_standalone_is_finished() {
    let store = Store::ready(Server::Standalone).await;
    let lease = fsck();
    let mut session = store.session().await.unwrap();
    store.install(&mut session, &lease).await.unwrap();
    let phase = statements::exclusive(Some(1));
    store.collection.update_one(statements::held(&lease.key), phase).await.unwrap();
    let grant = store.grant(&mut session, &lease.key, 0, true).await.unwrap();
    assert_eq!(grant, Grant::Granted(1));
    assert_eq!(store.refresh_look().await.unwrap().generation, Some(1));
    store.close().await;
}

#[tokio::test]
async fn a_grant_is_refused_when_the_document_or_the_generation_moved() {
    for server in BOTH {
        let store = Store::ready(server).await;
        let lease = fsck();
        let mut session = store.session().await.unwrap();
        let grant = store.grant(&mut session, &lease.key, 0, true).await.unwrap();
        assert_eq!(grant, Grant::Displaced);
        let grant = store.grant(&mut session, &lease.key, 0, false).await.unwrap();
        assert_eq!(grant, Grant::Displaced);

        store.install(&mut session, &lease).await.unwrap();
        let grant = store.grant(&mut session, &lease.key, 7, true).await.unwrap();
        assert_eq!(grant, Grant::GenerationMoved);
        if server == Server::ReplicaSet {
            // Both or neither.
            let phase = store.peek().await.unwrap().unwrap().ours.unwrap().phase;
            assert_eq!(phase, Some(Phase::Draining));
        }
        // A refused grant leaves nothing that a later one would believe.
        store.set(LAYOUT_ID, doc! { "$set": { "generation": 8_i64 } }).await;
        let grant = store.grant(&mut session, &lease.key, 8, true).await.unwrap();
        assert_eq!(grant, Grant::Granted(9));
        let layout = store.get(LAYOUT_ID).await.unwrap();
        assert_eq!(layout, doc! { "_id": "layout", "generation": 9_i64 });

        let max = store.grant(&mut session, &lease.key, i64::MAX, true).await;
        assert_eq!(max.unwrap_err().fault, Fault::Invalid);
        store.close().await;
    }
}

#[tokio::test]
async fn a_grant_without_bump_leaves_the_layout_alone() {
    for server in BOTH {
        let store = Store::ready(server).await;
        let lease = fsck();
        let mut session = store.session().await.unwrap();
        store.install(&mut session, &lease).await.unwrap();
        let grant = store.grant(&mut session, &lease.key, 0, false).await.unwrap();
        assert_eq!(grant, Grant::Granted(0));
        let look = store.refresh_look().await.unwrap();
        assert_eq!(look.fsck.unwrap().1, Some(Phase::Exclusive));
        assert_eq!(look.generation, Some(0));
        store.close().await;
    }
}

#[tokio::test]
async fn a_refresh_moves_the_pulse_of_what_stands_and_of_nothing_else() {
    for server in BOTH {
        let store = Store::ready(server).await;
        let mut session = store.session().await.unwrap();
        let leases = [writer(), writer(), writer()];
        for lease in &leases {
            store.register(&mut session, lease).await.unwrap();
        }
        let bystander = store.only(&leases[2].key.id).await.pulse;
        let gone = key("lease/gone");
        let taken = LeaseKey { owner: "other".to_owned(), ..leases[1].key.clone() };
        let before = store.only(&leases[0].key.id).await.pulse;
        let keys = [leases[0].key.clone(), gone.clone(), taken.clone()];
        assert_eq!(store.refresh(&keys).await.unwrap(), 1);
        assert_eq!(store.standing(&keys).await.unwrap(), vec![leases[0].key.clone()]);
        assert_ne!(store.only(&leases[0].key.id).await.pulse, before);
        assert_eq!(store.only(&leases[2].key.id).await.pulse, bystander);
        let document = store.get(&leases[0].key.id).await.unwrap();
        assert_eq!(document.get_document("lockhouse").unwrap().get_i64("beats").ok(), Some(1));
        // A value that is no number starts over rather than failing the refresh of all.
        let set = doc! { "$set": { "lockhouse.beats": "many" } };
        store.set(&leases[0].key.id, set).await;
        assert_eq!(store.refresh(&keys).await.unwrap(), 1);
        let document = store.get(&leases[0].key.id).await.unwrap();
        assert_eq!(document.get_document("lockhouse").unwrap().get_i64("beats").ok(), Some(1));
        assert_eq!(store.refresh(&[]).await.unwrap(), 0);
        store.close().await;
    }
}

#[tokio::test]
async fn fences_are_swept_but_for_the_own_and_go_with_their_lease() {
    for server in BOTH {
        let store = Store::ready(server).await;
        let own = fsck();
        let mut session = store.session().await.unwrap();
        store.install(&mut session, &own).await.unwrap();
        let lease = writer();
        store.register(&mut session, &lease).await.unwrap();
        let uuid = lease.key.id.strip_prefix("lease/").unwrap();
        let fences = [
            format!("fence/{}/1", own.key.owner),
            format!("fence/{uuid}/1"),
            format!("fence/{uuid}/2"),
            "fence/another/1".to_owned(),
        ];
        for fence in &fences {
            store.put(doc! { "_id": fence, "kind": "fence" }).await;
        }
        for detail in [Detail::Full, Detail::Lean] {
            let look = store.look_fsck(&mut session, &own.key, detail).await.unwrap();
            assert!(look.foreign_fences && look.writers.len() == 1);
        }
        let pulse = store.only(&lease.key.id).await.pulse;
        assert!(store.remove(&lease.key.id, &pulse).await.unwrap());
        assert!(store.get(&fences[1]).await.is_none() && store.get(&fences[2]).await.is_none());
        assert!(store.get(&fences[3]).await.is_some());

        store.sweep_fences(&own.key).await.unwrap();
        assert!(store.get(&fences[3]).await.is_none() && store.get(&fences[0]).await.is_some());
        let look = store.look_fsck(&mut session, &own.key, Detail::Lean).await.unwrap();
        assert!(!look.foreign_fences);
        store.set(FSCK_ID, doc! { "$set": { "lockhouse.fenced": true } }).await;
        assert!(store.release(&mut session, &own.key).await.unwrap());
        assert!(store.get(&fences[0]).await.is_none() && store.get(LAYOUT_ID).await.is_some());
        store.close().await;
    }
}

#[tokio::test]
async fn a_look_at_an_empty_store_still_has_the_servers_time() {
    for server in BOTH {
        let store = Store::open(server, None).await;
        let look = store.look().await.unwrap();
        assert!(look.leases.is_empty() && look.generation.is_none());
        assert!(look.now.as_millisecond() > 1_600_000_000_000);
        store.close().await;
    }
}

#[tokio::test]
async fn what_the_engine_must_know_differs_by_deployment_and_collection() {
    let replicated = Store::open(Server::ReplicaSet, None).await.traits();
    assert!(replicated.sessions_refuse_late && replicated.fails_over);
    let shared = Store::open(Server::ReplicaSet, Some(PEER_COLLECTION)).await;
    assert!(shared.store().as_str().ends_with("._httk_store_metadata"));
    let shared = shared.traits();
    assert!(shared.shared_with_peer && !shared.fails_over && shared.sessions_refuse_late);
    let standalone = Store::open(Server::Standalone, None).await.traits();
    assert!(!standalone.sessions_refuse_late && !standalone.fails_over && !standalone.shared_with_peer);
}

#[tokio::test]
async fn of_many_that_install_at_once_one_wins_and_the_others_know_it() {
    for server in BOTH {
        let store = Store::ready(server).await;
        for _ in 0..5 {
            let contenders = (0..16).map(|_| async {
                let mut session = store.session().await.unwrap();
                let lease = fsck();
                let install = store.install(&mut session, &lease).await;
                (lease.key, install)
            });
            let mut winner = None;
            for (key, install) in futures::future::join_all(contenders).await {
                match install {
                    Ok(Install::Mine) => assert!(winner.replace(key).is_none(), "two winners"),
                    Ok(Install::Held(held)) => assert!(!held.malformed),
                    Err(error) => assert_eq!(error.fault, Fault::Exists, "{error:?}"),
                }
            }
            let winner = winner.expect("somebody wins");
            let stands = store.peek().await.unwrap().unwrap();
            assert_eq!(stands.owner.as_ref(), Some(&winner.owner));
            let mut session = store.session().await.unwrap();
            assert!(store.release(&mut session, &winner).await.unwrap());
        }
        store.close().await;
    }
}
