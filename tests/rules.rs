//! One test a rule, R1 to R31 and R39, each a table of frames and outcomes (`cases/script.rs` explains the lines).
//!
//! The rules themselves are in `docs/protocol.md`. Rules about user code (R32 to R38) are tested with the facade.

#[path = "world/facade.rs"]
#[allow(dead_code)]
mod facade;
#[path = "world/runner.rs"]
#[allow(dead_code)]
mod runner;
#[path = "cases/script.rs"]
mod script;

use runner::Verdict;

macro_rules! rules {
    ($($name:ident: $table:literal)*) => {$(
        #[test]
        fn $name() {
            let table = concat!("case ", stringify!($name), "\n", $table);
            for case in script::read(table).expect("the table can be read") {
                match case.run() {
                    Verdict::Pass => {}
                    Verdict::Fail { step, expected, got } => panic!("step {step}, expected {expected}, got {got}"),
                    Verdict::Skip(op) => panic!("{op} can't be judged"),
                }
            }
        }
    )*};
}

rules! {
    r01_what_the_position_covers_is_dropped: r#"
with gap.grace=0
  0 ready 1 a E1 5 status=running data={"v":5}
  1 1< event a E1 4 {"v":4}
      drop a 4 as=duplicate
  2 1< event a E1 5 {"v":5}
      drop a 5 as=duplicate
      is a sync=live seq=5 data={"v":5}
"#

    r02_the_next_event_is_applied: r#"
with gap.grace=0
  0 ready 1 a E1 5 status=running data={"v":5}
  1 1< event a E1 6 #e6 !paused {"v":6}
      = a 6 event #e6 !paused {"v":6}
      is a sync=live seq=6 status=paused
"#

    r03_an_early_event_is_held_and_what_is_missing_is_asked_for: r#"
with gap.grace=0
  0 ready 1 a E1 11 status=running data={"v":11}
  1 1< event a E1 15 {"v":15}
      hold a 1
      flag gap a from=12 to=14
      > replay a from=12 to=14 epoch=E1 times=1
      is a sync=recovering seq=11
  2 1< replay a E1 re=replay events=[{"seq":12,"data":{"v":12}},{"seq":13,"data":{"v":13}},{"seq":14,"data":{"v":14}}] done
      = a 12..15
      flag recovered a
      is a sync=live seq=15 held=0
"#

    r04_held_events_follow_one_at_a_time_and_repeats_are_dropped: r#"
with gap.grace=1000
  0 ready 1 a E1 5 status=running data={"v":5}
  1 1< event a E1 8 {"v":8}
  2 1< event a E1 7 {"v":7}
  3 1< event a E1 7 {"v":77}
      hold a 2
  4 1< event a E1 6 {"v":6}
      = a 6 {"v":6}
      = a 7 {"v":7}
      = a 8 {"v":8}
      is a sync=live seq=8 held=0
"#

    r05_the_same_number_with_another_id_is_a_fork: r#"
with gap.grace=0
  0 ready 1 a E1 4 status=running data={"v":4}
  1 1< event a E1 5 #one {"v":5}
      = a 5
  2 1< event a E1 5 #other {"v":55}
      flag diverged a
      > snapshot a times=1
  3 1< event a E1 6 #six {"v":6}
      not = a
      hold a 1
  4 1< snapshot a E1 re=snapshot 5 !running {"v":55}
      = a 5 snapshot {"v":55}
      = a 6 {"v":6}
      is a sync=live
  5 1< event a E1 6 #again {"v":66}
      flag diverged a
      not > snapshot
"#

    r06_the_same_id_under_a_second_number_moves_only_the_position: r#"
with gap.grace=0
  0 ready 1 a E1 5 status=running data={"v":5}
  1 1< event a E1 6 #x {"v":6}
      = a 6
  2 1< event a E1 8 #x {"v":8}
      hold a 1
  3 1< event a E1 7 #y {"v":7}
      = a 7
      drop a 8 #x
      is a sync=live seq=8 data={"v":7}
"#

    r07_only_a_snapshot_decides_on_another_epoch: r#"
with gap.grace=0
  0 ready 1 a E1 5 status=running data={"v":5}
  1 1< event a E2 6 {"v":66}
      hold a 1
      > snapshot a times=1
      not = a
  2 1< event a E1 6 {"v":6}
      = a 6 {"v":6}
  3 1< snapshot a E2 re=snapshot 5 !running {"v":55}
      = a 5 snapshot reset epoch=E2 {"v":55}
      = a 6 {"v":66}
      is a epoch=E2 seq=6 sync=live held=0
  4 1< event a E1 7 {"v":7}
      drop a 7
      not > snapshot
"#

    r08_a_final_entity_never_changes: r#"
with gap.grace=0
  0 ready 1 done E1 7 status=running data={"v":7}
  1 ready 1 stopped E1 3 status=running data={"v":3}
  2 1< event done E1 8 !completed
      = done 8 !completed
      flag final done
  3 1< event stopped E1 4 !cancelled
      = stopped 4 !cancelled
      flag final stopped
  4 1< event done E1 9 !running {"v":9}
      flag after_final done
      is done sync=final status=completed data={"v":7} seq=9
  5 1< event stopped E1 5 !completed
      flag after_final stopped
      is stopped sync=final status=cancelled seq=5
  6 1< snapshot done E1 20 !running {"v":20}
      flag after_final done
      is done sync=final status=completed data={"v":7} seq=20
  7 close 1 1006
      is done sync=final
  8 advance 5000
"#

    r08_a_new_epoch_reopens_only_what_says_so: r#"
with gap.grace=0 entities={"b":{"reopen":"epoch"}}
  0 ready 1 a E1 7 status=running data={"v":7}
  1 ready 1 b E1 7 status=running data={"v":7}
  2 1< event a E1 8 !completed
      = a 8
  3 1< event b E1 8 !completed
      = b 8
  4 1< snapshot a E2 1 !running {"v":1}
      drop a 1
      is a sync=final status=completed
  5 1< event b E2 2 !running {"v":2}
      > snapshot b times=1
      is b sync=final
  6 1< snapshot b E2 re=snapshot 1 !running {"v":1}
      = b 1 snapshot reset
      = b 2
      is b sync=live status=running
"#

    r09_an_early_end_locks_when_it_is_applied: r#"
with gap.grace=0
  0 ready 1 a E1 5 status=running data={"v":5}
  1 1< event a E1 7 !completed
      hold a 1
      not flag final
      is a status=running
  2 1< event a E1 8 !running
      hold a 2
  3 1< event a E1 6 {"v":6}
      = a 6
      = a 7 !completed
      flag final a
      is a sync=final status=completed held=0
"#

    r10_statuses_may_repeat_and_timestamps_order_nothing: r#"
with gap.grace=0
  0 ready 1 a E1 1 status=queued data={"v":1}
  1 1< event a E1 2 !building at="2026-01-01T10:04:00Z"
      = a 2 !building
  2 1< event a E1 3 !building at="2026-01-01T10:00:00Z"
      = a 3 !building
  3 1< event a E1 4 !paused at="2026-01-01T09:00:00Z"
      = a 4 !paused
  4 1< event a E1 5 !building at="2025-01-01T00:00:00Z"
      = a 5 !building
      is a sync=live
"#

    r11_a_frame_without_a_usable_number_changes_nothing: r#"
with gap.grace=0 badFrames.max=4
  0 ready 1 a E1 5 status=running data={"v":5}
  1 raw 1 {"type":"event","entity":"a","epoch":"E1","seq":-6,"data":{"v":6}}
      flag bad_frame
  2 raw 1 {"type":"event","entity":"a","epoch":"E1","seq":6.5,"data":{"v":6}}
      flag bad_frame
  3 raw 1 {"type":"event","entity":"a","epoch":"E1","seq":"6","data":{"v":6}}
      = a 6 {"v":6}
      not flag bad_frame
  4 raw 1 {"type":"event","entity":"a","epoch":"E1","data":{"v":7}}
      flag bad_frame
      not close
      is a sync=live seq=6
  5 raw 1 {"type":"event","entity":"a","epoch":"E1","seq":9007199254740992,"data":{"v":7}}
      flag bad_frame
      > close code=4002
      is a sync=stale seq=6
"#

    r12_an_absurd_number_poisons_nothing: r#"
with gap.grace=0
  0 ready 1 a E1 5 status=running data={"v":5}
  1 1< event a E1 9007199254740991 {"v":0}
      hold a 0
      flag bad_frame
      > snapshot a times=1
  2 1< snapshot a E1 re=snapshot 5 !running {"v":5}
      is a sync=live seq=5
  3 1< event a E1 100007 {"v":0}
      hold a 0
      not > snapshot
  4 1< event a E1 6 {"v":6}
      = a 6
      is a sync=live
  5 advance 30000
  6 1< event a E1 9007199254740990 {"v":0}
      > snapshot a times=1
"#

    r13_an_event_without_data_or_status_uses_its_number: r#"
with gap.grace=0
  0 ready 1 a E1 5 status=running data={"v":5}
  1 1< event a E1 6
      not = a
      is a seq=6 status=running data={"v":5}
  2 1< event a E1 7 !paused
      = a 7 !paused {"v":5}
  3 1< event a E1 8 {"v":8}
      = a 8 !paused {"v":8}
      is a sync=live status=paused
"#

    r14_an_older_snapshot_never_rolls_back: r#"
with gap.grace=0
  0 ready 1 a E1 12 status=running data={"v":12}
  1 1< snapshot a E1 9 !queued {"v":9}
      drop a 9 as=stale
      is a sync=live seq=12 status=running data={"v":12}
"#

    r15_a_snapshot_at_the_position_confirms_and_another_status_is_a_fork: r#"
with gap.grace=0
  0 ready 1 a E1 12 status=running data={"v":12}
  1 1< snapshot a E1 12 !running {"v":99}
      not = a
      not flag diverged
      is a sync=live data={"v":12}
  2 1< snapshot a E1 12 !paused {"v":99}
      flag diverged a
      > snapshot a times=1
  3 1< snapshot a E1 re=snapshot 12 !paused {"v":99}
      = a 12 snapshot !paused {"v":99}
      is a sync=live
"#

    r16_a_newer_snapshot_is_adopted_and_names_what_it_passed_over: r#"
with gap.grace=0
  0 ready 1 badge E1 41 status=running data={"v":41}
  1 1< event badge E1 42 {"v":42}
      = badge 42
  2 1< event badge E1 40 {"v":40}
      drop badge 40 as=duplicate
  3 1< snapshot badge E1 45 !running {"v":45}
      = badge 45 snapshot skipped=[43,45]
  4 1< event badge E1 41 {"v":41}
      drop badge 41 as=duplicate
  5 1< event badge E1 43 {"v":43}
      drop badge 43 as=duplicate
  6 1< event badge E1 44 {"v":44}
      drop badge 44 as=duplicate
  7 1< event badge E1 45 {"v":45}
      drop badge 45 as=duplicate
  8 1< event badge E1 46 {"v":46}
      = badge 46
      is badge sync=live seq=46
"#

    r17_a_snapshot_replaces_and_its_parts_count_when_whole: r#"
with gap.grace=0 reduce=merge subscribe=["a"]
  0 open 1
  1 1< snapshot a E1 re=subscribe 5 part=1 of=2 {"x":1}
      not = a
      is a sync=joining
  2 1< snapshot a E1 re=subscribe 5 part=2 of=2 {"y":2}
      = a 5 snapshot {"x":1,"y":2}
  3 1< snapshot a E1 9 {"z":3}
      = a 9 snapshot {"z":3}
      is a data={"z":3}
"#

    r18_an_answer_that_nobody_waits_for_does_not_count: r#"
with gap.grace=0 tries.replay=1
  0 ready 1 a E1 5 status=running data={"v":5}
  1 1< event a E1 8 {"v":8}
      > replay a from=6 to=7
  2 1< snapshot a E1 request=4711 9 !running {"v":9}
      not = a
      is a seq=5
  3 advance 3000
      > snapshot a
  4 1< snapshot a E1 re=snapshot 8 !running {"v":8}
      = a 8 snapshot skipped=[6,8]
  5 1< replay a E1 re=replay#1 events=[{"seq":9,"data":{"v":9}}] done
      not = a
      is a seq=8 sync=live
"#

    r19_the_buffer_is_bounded_and_never_refuses_the_next_event: r#"
with gap.grace=0 gap.maxEvents=3
  0 ready 1 a E1 5 status=running data={"v":5}
  1 burst 1 a E1 8 12
      hold a 3
      > snapshot a
  2 1< event a E1 6 {"v":6}
      = a 6
      hold a 3
  3 1< snapshot a E1 re=snapshot 12 !running {"v":12}
      = a 12 snapshot
      is a sync=live held=0
"#

    r19_a_replay_that_delivers_keeps_what_comes_next: r#"
with gap.grace=0 gap.maxEvents=3
  0 ready 1 a E1 5 status=running data={"v":5}
  1 1< event a E1 8 {"v":8}
      > replay a from=6 to=7
  2 1< replay a E1 re=replay events=[{"seq":6,"data":{"v":6}}] done=false
      = a 6
  3 burst 1 a E1 9 12
      hold a 3
      not > snapshot
  4 1< replay a E1 re=replay events=[{"seq":7,"data":{"v":7}}] done
      = a 7..10
      is a seq=10
"#

    r20_few_requests_are_out_at_a_time: r#"
with gap.grace=0 requests.max=1
  0 ready 1 a E1 5 status=running data={"v":5}
  1 ready 1 b E1 5 status=running data={"v":5}
  2 1< event a E1 7 {"v":7}
      > replay a times=1
  3 1< event b E1 7 {"v":7}
      not > replay
      hold b 1
  4 1< replay a E1 re=replay events=[{"seq":6,"data":{"v":6}}] done
      = a 6..7
      > replay b from=6 to=6 times=1
"#

    r21_a_head_above_the_position_opens_a_gap_after_the_grace: r#"
with gap.grace=100 heartbeat=5
  0 ready 1 a E1 5 status=running data={"v":5}
  1 1< heartbeat heads=[["a","E1",7]]
      not > replay
      is a sync=live
  2 advance 100
      flag gap a from=6 to=7
      > replay a from=6 to=null epoch=E1
      is a sync=recovering
  3 1< replay a E1 re=replay events=[{"seq":6,"data":{"v":6}},{"seq":7,"data":{"v":7}}] done
      = a 6..7
      is a sync=live
"#

    r21_a_hole_in_n_asks_for_heads: r#"
with gap.grace=0
  0 ready 1 a E1 5 status=running data={"v":5}
  1 1< event a E1 6 n=10 {"v":6}
      = a 6
  2 1< event a E1 7 n=12 {"v":7}
      = a 7
      > heads a times=1
      is a sync=recovering
  3 1< heads - - re=heads heads=[["a","E1",7]]
      is a sync=live
"#

    r22_a_head_below_the_position_is_believed_the_third_time: r#"
with gap.grace=0
  0 ready 1 a E1 480 status=running data={"v":480}
  1 close 1 1006
  2 open 2
      > subscribe a epoch=E1 after=480
  3 2< ahead a E1 re=subscribe head=12
      > snapshot a times=1
      is a seq=480 sync=recovering
  4 2< snapshot a E1 re=snapshot 12 !running {"v":12}
      drop a 12 as=stale
      > snapshot a delay=[500,1000]
  5 2< snapshot a E1 re=snapshot 12 !running {"v":12}
      drop a 12 as=stale
      > snapshot a delay=[1000,2000]
  6 2< snapshot a E1 re=snapshot 12 !running {"v":12}
      = a 12 snapshot reset
      is a seq=12 sync=live
"#

    r23_an_unsatisfied_entity_always_has_something_under_way: r#"
with gap.grace=0 heartbeat=60
  0 ready 1 a E1 5 status=running data={"v":5}
  1 1< event a E1 8 {"v":8}
      > replay a
  2 advance 3000
      > replay a
  3 advance 3000
      > snapshot a
  4 advance 5000
      > snapshot a delay=[5500,6000]
  5 advance 5000
      > snapshot a delay=[6000,7000]
  6 advance 5000
      > snapshot a delay=[7000,9000]
  7 advance 5000
      > snapshot a delay=[9000,13000]
  8 advance 5000
      flag failed a
      is a sync=failed
  9 advance 30000
      > snapshot a
  10 1< snapshot a E1 re=snapshot 8 !running {"v":8}
      = a 8 snapshot
      is a sync=live
"#

    r24_a_clean_stream_costs_one_snapshot_an_entity: r#"
with subscribe=["a"] heartbeat=15
  0 open 1
      > subscribe a times=1
  1 1< snapshot a E1 re=subscribe 5 !running {"v":5}
      = a 5 snapshot
  2 burst 1 a E1 6 200
      = a 6..200
      not > replay
      not > snapshot
      not > heads
  3 advance 300000 heartbeats
      not > replay
      not > snapshot
      not > heads
      not > subscribe
      is a sync=live
"#

    r25_a_retired_socket_is_not_heard: r#"
with timeout.connect=5000
  0 app subscribe a
      > dial times=1
  1 advance 5000
      > close conn=1
      client sockets=0
  2 open 2
      > subscribe a conn=2
  3 open 1
      not > any conn=1
      client sockets=1
"#

    r26_waits_double_and_a_stable_connection_resets_them: r#"
with gap.grace=0
  0 ready 1 a E1 5 status=running data={"v":5}
  1 close 1 1006
  2 fail 2
      > dial delay=[100,500]
  3 fail 3
      > dial delay=[100,1000] spread=[300,600]
  4 open 4
      > dial delay=[100,2000]
  5 advance 6000
  6 close 4 1006
  7 open 5
      > dial delay=[100,500]
"#

    r26_retry_after_is_not_shortened: r#"
with gap.grace=0
  0 ready 1 a E1 5 status=running data={"v":5}
  1 1< goodbye - - reason="restart" retryAfter=30
  2 close 1 1012
      client connection=offline
  3 online
      not > dial
  4 advance 29000
      not > dial
  5 open 2
      > dial
"#

    r27_a_close_code_says_what_it_permits: r#"
with gap.grace=0 getToken=auto
  0 ready 1 a E1 5 status=running data={"v":5}
  1 close 1 4009
      is a sync=stale data={"v":5}
  2 open 2
      > subscribe a after=null
  3 2< snapshot a E1 re=subscribe 3 !running {"v":3}
      = a 3 snapshot reset
  4 close 2 4401
      > token
  5 open 3
      > subscribe a after=3
  6 close 3 4403
      client connection=stopped
  7 advance 60000
      not > dial
      not > token
  8 app connect
      > dial times=1
"#

    r28_two_silent_intervals_probe_and_a_missing_pong_replaces: r#"
with gap.grace=0 heartbeat=5
  0 ready 1 a E1 5 status=running data={"v":5}
  1 advance 9999
      not > ping
  2 advance 1
      > ping times=1
  3 pongs 1 off
  4 advance 10000
      > ping times=1
      not close
  5 advance 5000
      > close conn=1 code=4000
      > dial delay=[0,0]
"#

    r28_without_a_promise_pings_go_out_whatever_arrives: r#"
with gap.grace=0
  0 ready 1 a E1 5 status=running data={"v":5}
  1 advance 24000
      not > ping
  2 1< event a E1 6 {"v":6}
      = a 6
  3 advance 1000
      > ping times=1
"#

    r29_a_token_is_fetched_before_every_dial: r#"
with gap.grace=0 getToken=steps
  0 ready 1 a E1 5 status=running data={"v":5} token=t1
  1 close 1 1006
  2 advance 500
      > token times=1
      not > dial
  3 token refused
      client connection=offline
  4 advance 1000
      > token times=1
  5 token t2
      > dial times=1
  6 open 2
      > hello token=t2
      > subscribe a after=5
"#

    r30_every_wanted_entity_resumes_from_its_position: r#"
with gap.grace=0
  0 ready 1 a E1 5 status=running data={"v":5}
  1 1< event a E1 8 {"v":8}
      hold a 1
  2 close 1 1006
      hold a 1
  3 open 2
      > subscribe a epoch=E1 after=5 times=1
      not > replay
      is a sync=recovering
  4 2< event a E1 9 {"v":9}
      hold a 2
      not > replay
  5 2< replay a E1 re=subscribe events=[{"seq":6,"data":{"v":6}},{"seq":7,"data":{"v":7}},{"seq":8,"data":{"v":8}}] done
      = a 6..9
      is a sync=live held=0
"#

    r30_a_resume_without_an_answer_is_asked_again: r#"
with gap.grace=0 heartbeat=60
  0 ready 1 a E1 5 status=running data={"v":5}
  1 close 1 1006
  2 open 2
      > subscribe a after=5 times=1
  3 advance 5000
      > subscribe a after=5 times=1
  4 2< subscribed a E1 re=subscribe head=5
      is a sync=live
"#

    r31_the_last_subscriber_unsubscribes_after_the_linger: r#"
with gap.grace=0 linger=1000
  0 ready 1 a E1 5 status=running data={"v":5}
  1 app unsubscribe a
      not > unsubscribe
  2 advance 900
  3 app subscribe a
      not > subscribe
      is a sync=live seq=5
  4 advance 5000
      not > unsubscribe
  5 app unsubscribe a
  6 advance 1000
      > unsubscribe a times=1
      is a present=false
"#

    r31_a_released_final_entity_does_not_come_back_to_life: r#"
with gap.grace=0 linger=0
  0 ready 1 a E1 5 status=running data={"v":5}
  1 1< event a E1 6 !completed
      = a 6 !completed
  2 app unsubscribe a
      > unsubscribe a
      is a present=false
  3 app subscribe a
      > subscribe a after=null
  4 1< snapshot a E1 re=subscribe 7 !running {"v":7}
      flag after_final a
      is a sync=final status=completed
"#

    r39_membership_is_in_order_and_a_topic_covers_its_members: r#"
with gap.grace=0 linger=0 subscribe=["topic/t"]
  0 open 1
      > subscribe topic/t after=null
  1 1< snapshot topic/t E1 re=subscribe 1 ["a"]
      = topic/t 1 snapshot
      is a sync=joining
  2 1< snapshot a E1 10 !running {"v":10}
      = a 10 snapshot
      is a sync=live
      not > subscribe
  3 1< event topic/t E1 3 {"add":["c"]}
      hold topic/t 1
      is c present=false
  4 1< event topic/t E1 2 {"add":["b"],"remove":["a"]}
      = topic/t 2
      = topic/t 3
      is a present=false
      is b sync=joining
      is c sync=joining
      not > unsubscribe
  5 1< event a E1 11 {"v":11}
      drop a 11 as=unknown
  6 1< event nobody E1 1 {"v":1}
      drop nobody 1 as=unknown
      is nobody present=false
"#

    r39_a_member_whose_snapshot_was_overtaken_is_asked_for_after_the_grace: r#"
with gap.grace=100 subscribe=["topic/t"]
  0 open 1
  1 1< snapshot topic/t E1 re=subscribe 1 ["a"]
      = topic/t 1 snapshot
  2 1< event a E1 11 {"v":11}
      hold a 1
      not > snapshot
  3 advance 100
      > snapshot a times=1
  4 1< snapshot a E1 re=snapshot 10 !running {"v":10}
      = a 10 snapshot
      = a 11
      is a sync=live
"#

    r39_a_resume_names_only_members_that_were_not_live_at_the_cursor: r#"
with gap.grace=0 subscribe=["topic/t"] heartbeat=15
  0 open 1
  1 1< subscribed topic/t E1 re=subscribe head=1 cursor="c0"
  2 1< snapshot topic/t E1 re=subscribe 1 ["a","b"]
      = topic/t 1 snapshot
  3 1< snapshot a E1 10 !running {"v":10}
      = a 10 snapshot
  4 1< heartbeat heads=[] cursors=[["topic/t","c1"]]
  5 1< event a E1 11 {"v":11}
      = a 11
  6 close 1 1006
      is a sync=stale
  7 open 2
      > subscribe topic/t epoch=E1 after=1 cursor=c1 behind=[["b",null,null]]
      is a sync=recovering
  8 2< subscribed topic/t E1 re=subscribe head=1 cursor="c1"
      is topic/t sync=live
      is a sync=recovering
  9 2< event a E1 12 {"v":12}
      = a 12
  10 2< snapshot b E1 3 !running {"v":3}
      = b 3 snapshot
  11 2< heartbeat heads=[] cursors=[["topic/t","c2"]]
      is a sync=live
      is b sync=live
"#

    deployments_are_shown_step_by_step: r#"
with gap.grace=0 terminal=["live"]
  0 ready 1 dep_301 E1 0 status=null data=null
  1 ready 1 dep_302 E1 0 status=null data=null
  2 ready 1 dep_303 E1 0 status=null data=null
  3 1< event dep_301 E1 1 !queued at="2026-05-01T12:04:00Z"
      = dep_301 1 !queued
  4 1< event dep_302 E1 1 !queued
      = dep_302 1 !queued
  5 1< event dep_301 E1 3 !live at="2026-05-01T12:00:30Z"
      > replay dep_301 from=2 to=2
  6 1< event dep_302 E1 2 !building
      = dep_302 2 !building
  7 1< event dep_303 E1 1 !queued
      = dep_303 1 !queued
  8 1< event dep_301 E1 2 !building at="2026-05-01T12:00:00Z"
      = dep_301 2 !building
      = dep_301 3 !live
      flag final dep_301
  9 1< event dep_302 E1 2 !building
      drop dep_302 2 as=duplicate
  10 1< event dep_303 E1 3 !live
  11 1< event dep_302 E1 3 !failed
      = dep_302 3 !failed
  12 1< event dep_303 E1 2 !building
      = dep_303 2 !building
      = dep_303 3 !live
  13 1< event dep_302 E1 4 !building
      = dep_302 4 !building
      is dep_301 sync=final status=live
      is dep_302 sync=live status=building
      is dep_303 sync=final status=live
"#

    deployments_let_the_newest_win_where_the_model_says_so: r#"
with gap.grace=0 terminal=["live"] onGap=skip
  0 ready 1 dep_301 E1 0 status=null data=null
  1 ready 1 dep_302 E1 0 status=null data=null
  2 ready 1 dep_303 E1 0 status=null data=null
  3 1< event dep_301 E1 1 !queued at="2026-05-01T12:04:00Z"
      = dep_301 1 !queued
  4 1< event dep_302 E1 1 !queued
      = dep_302 1 !queued
  5 1< event dep_301 E1 3 !live at="2026-05-01T12:00:30Z"
      = dep_301 3 !live
      flag final dep_301
  6 1< event dep_302 E1 2 !building
      = dep_302 2 !building
  7 1< event dep_303 E1 1 !queued
      = dep_303 1 !queued
  8 1< event dep_301 E1 2 !building at="2026-05-01T12:00:00Z"
      drop dep_301 2
  9 1< event dep_302 E1 2 !building
      drop dep_302 2 as=duplicate
  10 1< event dep_303 E1 3 !live
      = dep_303 3 !live
  11 1< event dep_302 E1 3 !failed
      = dep_302 3 !failed
  12 1< event dep_303 E1 2 !building
      drop dep_303 2
  13 1< event dep_302 E1 4 !building
      = dep_302 4 !building
      is dep_301 sync=final status=live
      is dep_302 sync=live status=building
      is dep_303 sync=final status=live
      not > replay
      not > snapshot
"#
}
