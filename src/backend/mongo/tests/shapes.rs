use super::*;
use crate::backend::Ours;
use bson::Bson;

/// Documents that stand where a lease may stand and are none, one for each way.
fn malformed() -> Vec<Document> {
    let good = doc! {
        "_id": "lease/m", "kind": "writer", "owner": "o", "heartbeat": bson::DateTime::now(), "n": 1,
    };
    let mut shapes = vec![doc! { "_id": "lease/m" }];
    for (field, values) in [
        ("owner", vec![Bson::Null, 7.into(), doc! {}.into()]),
        ("heartbeat", vec![Bson::Null, 7_i64.into(), "now".into(), bson::Timestamp { time: 1, increment: 1 }.into()]),
        ("kind", vec![Bson::Null, "reader".into(), vec!["writer"].into()]),
    ] {
        let mut without = good.clone();
        without.remove(field);
        shapes.push(without);
        for value in values {
            let mut shape = good.clone();
            shape.insert(field, value);
            shapes.push(shape);
        }
    }
    // Fields named like what a look adds.
    shapes.push(doc! {
        "_id": "lease/m", "now": bson::DateTime::from_millis(1), "layout": [{ "generation": 9 }],
        "d": { "_id": LAYOUT_ID, "generation": 9 },
    });
    // Fields whose names and values are awkward in an expression.
    shapes.push(doc! {
        "_id": "lease/m", "a.b": "$owner", "$c": ["$$ROOT", f64::NAN], "d\u{1F512}": { "$literal": "x\0y" }, "": Bson::MinKey,
    });
    shapes
}

#[tokio::test]
async fn every_malformed_shape_is_listed_and_can_be_removed_by_exactly_its_pulse() {
    for server in BOTH {
        let store = Store::ready(server).await;
        let own = fsck();
        let mut session = store.session().await.unwrap();
        store.install(&mut session, &own).await.unwrap();
        for shape in malformed() {
            store.put(shape.clone()).await;
            let full = store.only("lease/m").await;
            assert!(full.malformed, "{shape}");
            let lean = store.look_fsck(&mut session, &own.key, Detail::Lean).await.unwrap();
            assert_eq!(lean.writers[0].pulse, full.pulse, "{shape}");
            assert_eq!(lean.generation, Some(0), "{shape}");

            store.set("lease/m", doc! { "$set": { "touched": true } }).await;
            assert!(!store.remove("lease/m", &full.pulse).await.unwrap(), "{shape}");
            store.set("lease/m", doc! { "$unset": { "touched": 1 } }).await;
            assert!(store.remove("lease/m", &full.pulse).await.unwrap(), "{shape}");
            assert!(!store.remove("lease/m", &full.pulse).await.unwrap(), "{shape}");
        }
        store.close().await;
    }
}

#[tokio::test]
async fn a_malformed_document_with_another_type_is_another_document() {
    let store = Store::ready(Server::ReplicaSet).await;
    store.put(doc! { "_id": "lease/m", "heartbeat": 7_i64 }).await;
    let pulse = store.only("lease/m").await.pulse;
    store.set("lease/m", doc! { "$set": { "heartbeat": 7.0 } }).await;
    assert!(!store.remove("lease/m", &pulse).await.unwrap());
    store.set("lease/m", doc! { "$set": { "heartbeat": 7_i64 } }).await;
    assert!(store.remove("lease/m", &pulse).await.unwrap());
    store.close().await;
}

#[tokio::test]
async fn removing_and_replacing_need_exactly_the_pulse_that_was_seen() {
    for server in BOTH {
        let store = Store::ready(server).await;
        let lease = fsck();
        let mut session = store.session().await.unwrap();
        store.install(&mut session, &lease).await.unwrap();
        let original = store.get(FSCK_ID).await.unwrap();
        let pulse = store.only(FSCK_ID).await.pulse;
        let beats = |value: Bson| doc! { "$set": { "lockhouse.beats": value } };
        for moved in [
            beats(1_i64.into()),
            beats(0_i32.into()),
            beats(0.0.into()),
            beats(Bson::Null),
            doc! { "$unset": { "lockhouse.beats": 1 } },
            doc! { "$unset": { "lockhouse": 1 } },
            doc! { "$set": { "owner": "other" } },
            doc! { "$unset": { "owner": 1 } },
            doc! { "$set": { "heartbeat": bson::DateTime::from_millis(1) } },
            doc! { "$set": { "heartbeat": Bson::Null } },
            doc! { "$unset": { "heartbeat": 1 } },
        ] {
            store.set(FSCK_ID, moved.clone()).await;
            assert!(!store.remove(FSCK_ID, &pulse).await.unwrap(), "{moved}");
            assert!(!store.replace(&mut session, &fsck(), &pulse).await.unwrap(), "{moved}");
            // And the shape that stands now has a pulse of its own, by which it can be replaced.
            let now = store.only(FSCK_ID).await.pulse;
            assert_ne!(now, pulse, "{moved}");
            let next = fsck();
            assert!(store.replace(&mut session, &next, &now).await.unwrap(), "{moved}");
            let stands = store.only(FSCK_ID).await;
            assert_eq!(stands.owner, Some(next.key.owner));
            assert!(!stands.malformed && stands.ours.is_some());
            store.documents().replace_one(doc! { "_id": FSCK_ID }, original.clone()).await.unwrap();
        }
        assert!(store.remove(FSCK_ID, &pulse).await.unwrap());
        store.close().await;
    }
}

#[tokio::test]
async fn odd_values_of_beats_are_pulses_too() {
    let store = Store::ready(Server::ReplicaSet).await;
    let odd = [
        Bson::Null,
        Bson::Double(f64::NAN),
        "$owner".into(),
        vec![Bson::from(1), Bson::from("$$ROOT")].into(),
        doc! { "$literal": 1 }.into(),
    ];
    for beats in odd {
        for lockhouse in [
            doc! { "beats": beats.clone() }.into(),
            vec![Bson::from(doc! { "beats": beats.clone() })].into(),
            beats.clone(),
        ] {
            let mut session = store.session().await.unwrap();
            let lease = writer();
            store.register(&mut session, &lease).await.unwrap();
            store.set(&lease.key.id, doc! { "$set": { "lockhouse": Bson::clone(&lockhouse) } }).await;
            let own = fsck();
            store.install(&mut session, &own).await.unwrap();
            let record = store.only(&lease.key.id).await;
            assert!(!record.malformed && record.ours.is_none(), "{lockhouse}");
            let lean = store.look_fsck(&mut session, &own.key, Detail::Lean).await.unwrap();
            assert_eq!(lean.writers[0].pulse, record.pulse, "{lockhouse}");
            assert!(store.remove(&lease.key.id, &record.pulse).await.unwrap(), "{lockhouse}");
            store.release(&mut session, &own.key).await.unwrap();
        }
    }
    store.close().await;
}

#[tokio::test]
async fn a_full_and_a_lean_look_see_the_same() {
    let store = Store::ready(Server::ReplicaSet).await;
    let own = fsck();
    let mut session = store.session().await.unwrap();
    store.install(&mut session, &own).await.unwrap();
    for _ in 0..3 {
        store.register(&mut session, &writer()).await.unwrap();
    }
    store.put(doc! { "_id": "lease/peer", "kind": "writer", "owner": "p", "heartbeat": bson::DateTime::now() }).await;
    let full = store.look_fsck(&mut session, &own.key, Detail::Full).await.unwrap();
    let lean = store.look_fsck(&mut session, &own.key, Detail::Lean).await.unwrap();
    assert_eq!((full.writers.len(), full.generation), (4, lean.generation));
    let by_id = |mut writers: Vec<Record<Pulse>>| {
        writers.sort_by(|a, b| a.id.cmp(&b.id));
        writers
    };
    for (full, lean) in by_id(full.writers).into_iter().zip(by_id(lean.writers)) {
        assert_eq!((&full.id, &full.owner, &full.pulse), (&lean.id, &lean.owner, &lean.pulse));
        assert_eq!((full.heartbeat, full.malformed), (lean.heartbeat, lean.malformed));
        let judged_by = |ours: Option<Ours>| ours.map(|ours| (ours.stale_after, ours.refresh_interval, ours.phase));
        assert_eq!(full.ours.is_none(), full.id == "lease/peer");
        assert_eq!(judged_by(full.ours), judged_by(lean.ours));
    }
    store.close().await;
}

#[tokio::test]
async fn texts_that_look_like_paths_and_variables_stay_texts() {
    for server in BOTH {
        let store = Store::ready(server).await;
        let mut session = store.session().await.unwrap();
        for text in ["$owner", "$$ROOT", "$$FOO", "$", "a\nb", "a\0b", "{\"$literal\": 1}"] {
            let mut lease = writer();
            lease.key.owner = format!("{text}{}", lease.key.owner);
            lease.reason = Some(text.to_owned());
            lease.holder.label = Some(text.to_owned());
            lease.holder.user = text.to_owned();
            store.register(&mut session, &lease).await.unwrap();
            let mut fsck = NewLease { key: key(FSCK_ID), ..lease.clone() };
            fsck.key.owner = format!("{text}{}", fsck.key.owner);
            let install = store.install(&mut session, &fsck).await.unwrap();
            assert!(matches!(install, Install::Mine));
            for (id, owner) in [(&lease.key.id, &lease.key.owner), (&fsck.key.id, &fsck.key.owner)] {
                let record = store.only(id).await;
                assert_eq!(record.owner.as_ref(), Some(owner));
                let ours = record.ours.unwrap();
                assert_eq!(ours.reason.as_deref(), Some(text));
                assert_eq!(ours.holder.as_ref(), Some(&lease.holder));
            }
            assert_eq!(store.refresh(&[lease.key.clone(), fsck.key.clone()]).await.unwrap(), 2);
            let pulse = store.only(FSCK_ID).await.pulse;
            let mut next = fsck.clone();
            next.key.owner.push('2');
            assert!(store.replace(&mut session, &next, &pulse).await.unwrap());
            let pulse = store.only(FSCK_ID).await.pulse;
            assert!(store.remove(FSCK_ID, &pulse).await.unwrap());
        }
        store.close().await;
    }
}

#[tokio::test]
async fn an_install_keeps_whatever_has_an_owner_and_lists_what_has_none() {
    for server in BOTH {
        let store = Store::ready(server).await;
        let mut session = store.session().await.unwrap();
        // A peer between its insert and its first heartbeat.
        let peer = doc! { "_id": FSCK_ID, "owner": "peer", "heartbeat": Bson::Null };
        store.put(peer.clone()).await;
        match store.install(&mut session, &fsck()).await.unwrap() {
            Install::Held(held) => {
                assert!(held.malformed && held.ours.is_none() && held.age_ms.is_none());
                assert!(store.remove(FSCK_ID, &held.pulse).await.unwrap());
            }
            Install::Mine => panic!("took a peer's lease"),
        }
        let no_owner = doc! { "_id": FSCK_ID, "heartbeat": bson::DateTime::from_millis(1) };
        store.put(no_owner.clone()).await;
        let error = store.install(&mut session, &fsck()).await.unwrap_err();
        assert_eq!(error.fault, Fault::Exists);
        assert_eq!(store.get(FSCK_ID).await, Some(no_owner));
        let record = store.peek().await.unwrap().unwrap();
        assert!(record.malformed);
        assert!(store.remove(FSCK_ID, &record.pulse).await.unwrap());

        store.install(&mut session, &fsck()).await.unwrap();
        let stands = store.get(FSCK_ID).await.unwrap();
        assert!(stands.get_datetime("heartbeat").is_ok());
        assert_eq!(stands.get("heartbeat"), stands.get_document("lockhouse").unwrap().get("acquired"));
        store.close().await;
    }
}

#[tokio::test]
async fn a_lease_that_a_peer_took_over_is_no_longer_ours() {
    for server in BOTH {
        let store = Store::ready(server).await;
        let mut session = store.session().await.unwrap();
        let lease = fsck();
        store.install(&mut session, &lease).await.unwrap();
        store.set(FSCK_ID, doc! { "$set": { "owner": "peer", "heartbeat": bson::DateTime::now() } }).await;
        let record = store.only(FSCK_ID).await;
        assert!(record.ours.is_none() && !record.malformed);
        assert_eq!(store.refresh(std::slice::from_ref(&lease.key)).await.unwrap(), 0);
        assert!(!store.release(&mut session, &lease.key).await.unwrap());
        assert_eq!(store.grant(&mut session, &lease.key, 0, true).await.unwrap(), Grant::Displaced);
        assert_eq!(store.refresh_look().await.unwrap().fsck, Some((Some("peer".to_owned()), None)));
        assert!(store.get(FSCK_ID).await.is_some());
        store.close().await;
    }
}

#[tokio::test]
async fn an_absurd_heartbeat_does_not_blind_a_look() {
    let store = Store::ready(Server::ReplicaSet).await;
    for (id, millis) in [("lease/past", i64::MIN), ("lease/future", i64::MAX)] {
        store
            .put(doc! { "_id": id, "kind": "writer", "owner": "o", "heartbeat": bson::DateTime::from_millis(millis) })
            .await;
        let record = store.only(id).await;
        assert!(record.heartbeat.is_none() && record.age_ms.is_some());
        assert!(store.remove(id, &record.pulse).await.unwrap());
    }
    store.close().await;
}

#[tokio::test]
async fn a_layout_without_an_integer_is_no_layout() {
    for server in BOTH {
        let store = Store::open(server, None).await;
        let mut session = store.session().await.unwrap();
        for (value, generation) in [
            (Bson::Int32(3), Some(3)),
            (Bson::Int64(1 << 40), Some(1 << 40)),
            (Bson::Double(3.0), None),
            (Bson::Null, None),
            ("3".into(), None),
        ] {
            store.put(doc! { "_id": LAYOUT_ID, "generation": value.clone() }).await;
            let lease = fsck();
            store.install(&mut session, &lease).await.unwrap();
            let look = store.look_writer(&mut session, &lease.key).await.unwrap();
            assert_eq!(look.generation, generation);
            assert_eq!(store.refresh_look().await.unwrap().generation, generation);
            assert_eq!(store.look().await.unwrap().generation, generation);
            match generation {
                Some(_) => assert_eq!(store.init().await.unwrap(), Init::AlreadyThere),
                None => {
                    assert_eq!(store.init().await.unwrap_err().fault, Fault::Invalid);
                    let grant = store.grant(&mut session, &lease.key, 3, true).await.unwrap();
                    assert_eq!(grant, Grant::GenerationMoved);
                    assert_eq!(store.get(LAYOUT_ID).await.unwrap().get("generation"), Some(&value));
                }
            }
            store.release(&mut session, &lease.key).await.unwrap();
            store.documents().delete_one(doc! { "_id": LAYOUT_ID }).await.unwrap();
        }
        store.close().await;
    }
}

#[tokio::test]
async fn a_look_that_needs_several_replies_sees_everything() {
    for server in BOTH {
        let store = Store::ready(server).await;
        let own = fsck();
        let mut session = store.session().await.unwrap();
        store.install(&mut session, &own).await.unwrap();
        // More than the server puts into one reply.
        for _ in 0..20 {
            let mut lease = writer();
            lease.reason = Some("x".repeat(1 << 20));
            store.register(&mut session, &lease).await.unwrap();
        }
        let look = store.look_fsck(&mut session, &own.key, Detail::Full).await.unwrap();
        assert_eq!((look.writers.len(), look.generation), (20, Some(0)));
        assert_eq!(store.look().await.unwrap().leases.len(), 21);
        let mut lease = writer();
        lease.reason = Some("x".repeat(17 << 20));
        let error = store.register(&mut session, &lease).await.unwrap_err();
        assert_eq!(error.fault, Fault::Invalid, "{error:?}");
        store.close().await;
    }
}
