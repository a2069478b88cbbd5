#!/bin/sh
# Other runtimes: their own threads, signals and ways to start programs.
# also: locker.c
# build: command -v rustc >/dev/null || exit 0; sh ./languages.sh rust >p.rs && rustc -A warnings -o rust p.rs
# build: command -v go >/dev/null || exit 0; export GOCACHE=$PWD/cache; sh ./languages.sh go >p.go && CGO_ENABLED=0 go build -o go p.go && sed 's/^package main$/package main\nimport "C"/' p.go >c.go && CGO_ENABLED=1 go build -o go_c c.go; S=$?; rm -rf cache; exit $S
# start go: [ ! -e go ] || "$@" ./go
# start go_c: [ ! -e go_c ] || "$@" ./go_c
# start rust: [ ! -e rust ] || "$@" ./rust
# start java: command -v java >/dev/null || exit 0; sh ./languages.sh java >P.java; "$@" java P.java
# start node: command -v node >/dev/null || exit 0; sh ./languages.sh node >p.js; "$@" node p.js
# start perl: "$@" perl -e '$SIG{USR1} = sub { print "got\n" }; kill USR1 => $$; my $p = fork; exit 4 if !$p; waitpid $p, 0; print $? >> 8, "\n", `./locker`; system "exit 3"; print $?, "\n"; print map { "$_=$ENV{$_}\n" } grep { !/^WAY|^_$/ } sort keys %ENV; exit 6'
# limit: 60
case $1 in
go) cat <<'P' ;;
package main
import ("fmt"; "os"; "os/exec"; "os/signal"; "sync"; "syscall"; "time")
func main() {
	c := make(chan os.Signal, 9)
	signal.Notify(c, syscall.SIGUSR1)
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	fmt.Println(<-c)
	var w sync.WaitGroup
	for i := 0; i < 100; i++ { w.Add(1); go func() { defer w.Done(); time.Sleep(time.Millisecond) }() }
	w.Wait()
	out, err := exec.Command("./locker").CombinedOutput()
	fmt.Println(string(out), err)
	func() { defer func() { fmt.Println(recover()) }(); var p *int; *p = 1 }()
	for _, e := range os.Environ() { if e[0] != 'W' && e[0] != '_' { fmt.Println(e) } }
	fmt.Println(syscall.Exec("./locker", []string{"locker"}, os.Environ()))
}
P
rust) cat <<'P' ;;
use std::{process::Command, sync::{Arc, Condvar, Mutex}, thread};
fn main() {
    let m = Arc::new((Mutex::new(0), Condvar::new()));
    let t: Vec<_> = (0..8).map(|_| { let m = m.clone(); thread::spawn(move || { for _ in 0..1000 { *m.0.lock().unwrap() += 1; m.1.notify_one() } }) }).collect();
    t.into_iter().for_each(|t| t.join().unwrap());
    println!("{}", m.0.lock().unwrap());
    println!("{:?}", Command::new("./locker").output());
    std::fs::create_dir("d").unwrap();
    std::fs::rename("locker", "d/rel").unwrap();
    println!("{:?}", Command::new("./rel").current_dir("d").status());
    println!("{:?}", { std::panic::set_hook(Box::new(|_| {})); std::panic::catch_unwind(|| panic!("a panic")).is_err() });
    println!("{:?}", Command::new("sh").args(["-c", "kill -11 $$"]).env_clear().env("A", "1").status());
    fn deep(n: u64) -> u64 { let a = [n; 100]; if n == 0 { 0 } else { deep(n - 1) + a[50] } }
    println!("{}", deep(1000));
    std::process::exit(9)
}
P
java) cat <<'P' ;;
import java.util.concurrent.*;
public class P {
    static int deep(int n) { return deep(n + 1) + 1; }
    public static void main(String[] a) throws Exception {
        ExecutorService e = Executors.newFixedThreadPool(8); int sum = 0;
        java.util.List<Future<Integer>> f = new java.util.ArrayList<>();
        for (int i = 0; i < 100; i++) { int n = i; f.add(e.submit(() -> n)); }
        for (Future<Integer> x : f) sum += x.get();
        e.shutdown();
        System.out.println(sum);
        try { deep(0); } catch (StackOverflowError x) { System.out.println("overflow"); }
        String s = null;
        for (int i = 0; i < 20000; i++) try { s.length(); } catch (NullPointerException x) { sum++; }
        System.out.println(sum);
        Process p = new ProcessBuilder("./locker").redirectErrorStream(true).start();
        System.out.print(new String(p.getInputStream().readAllBytes()));
        System.out.println(p.waitFor());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("hook")));
        System.exit(8);
    }
}
P
node) cat <<'P' ;;
const { execFileSync, spawnSync } = require("child_process");
const { Worker } = require("worker_threads");
process.on("SIGUSR2", () => console.log("got"));
process.kill(process.pid, "SIGUSR2");
try { execFileSync("./locker") } catch (e) { console.log(e.status, String(e.stdout)) }
console.log(spawnSync("sh", ["-c", "kill -9 $$"]).signal);
new Worker("require('worker_threads').parentPort.postMessage(5)", { eval: true }).on("message", (m) => { console.log(m); setTimeout(() => process.exit(7), 50) });
P
esac
