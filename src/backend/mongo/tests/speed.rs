use super::*;
use std::time::Instant;

async fn fill(store: &Store, count: usize) -> Vec<LeaseKey> {
    let holder = documents::lockhouse(&writer());
    let mut keys = Vec::new();
    let mut all = Vec::new();
    for _ in 0..count {
        let lease = writer();
        let mut lockhouse = holder.clone();
        lockhouse.insert("for", &lease.key.owner);
        lockhouse.insert("reason", "nightly import of the eastern shops");
        all.push(doc! {
            "_id": &lease.key.id, "kind": "writer", "owner": &lease.key.owner,
            "heartbeat": bson::DateTime::now(), "lockhouse": lockhouse,
        });
        keys.push(lease.key);
    }
    store.documents().insert_many(all).await.unwrap();
    keys
}

#[tokio::test]
#[ignore = "prints figures; run it in release"]
async fn figures() {
    for server in BOTH {
        let store = Store::ready(server).await;
        let keys = fill(&store, 10_000).await;
        let lease = fsck();
        let mut session = store.session().await.unwrap();
        store.install(&mut session, &lease).await.unwrap();
        for detail in [Detail::Lean, Detail::Full, Detail::Lean, Detail::Full] {
            let mut took = Vec::new();
            for _ in 0..20 {
                let began = Instant::now();
                let look = store.look_fsck(&mut session, &lease.key, detail).await.unwrap();
                took.push(began.elapsed());
                assert_eq!(look.writers.len(), keys.len());
            }
            took.sort();
            println!("{server:?} look_fsck {detail:?}: median {:?}, least {:?}", took[10], took[0]);
        }
        for _ in 0..5 {
            let began = Instant::now();
            for chunk in keys.chunks(crate::backend::REFRESH_CHUNK) {
                assert_eq!(store.refresh(chunk).await.unwrap(), chunk.len() as u64);
            }
            println!("{server:?} refresh of {}: {:?}", keys.len(), began.elapsed());
        }
        let mut took = Vec::new();
        for _ in 0..300 {
            let lease = writer();
            let mut session = store.session().await.unwrap();
            let began = Instant::now();
            store.register(&mut session, &lease).await.unwrap();
            store.look_writer(&mut session, &lease.key).await.unwrap();
            store.release(&mut session, &lease.key).await.unwrap();
            took.push(began.elapsed());
        }
        took.sort();
        println!("{server:?} register, look, release: median {:?}", took[150]);
        let mut took = Vec::new();
        for _ in 0..300 {
            let id = doc! { "_id": unique() };
            let mut session = store.database.client().start_session().await.unwrap();
            let coll = store.documents();
            let began = Instant::now();
            coll.update_one(id.clone(), doc! { "$set": { "owner": "o" } })
                .upsert(true)
                .session(&mut session)
                .await
                .unwrap();
            let mut found = coll
                .find(doc! { "_id": { "$in": [&unique(), FSCK_ID, LAYOUT_ID] } })
                .session(&mut session)
                .await
                .unwrap();
            while found.next(&mut session).await.is_some() {}
            coll.delete_one(id).session(&mut session).await.unwrap();
            took.push(began.elapsed());
        }
        took.sort();
        println!("{server:?} the driver's three calls: median {:?}", took[150]);
        store.close().await;
    }
}
