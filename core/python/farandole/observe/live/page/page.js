// Takes the frames of the job and shows them. farandole/observe/live/model.py makes the frames.
"use strict";

const MOST_OPERATIONS = 200000, MOST_POINTS = 240;
const POLL_MS = 300;
const MANY_RANKS = 32; // more than are seen at once

/** The operations that came, and each rank as the latest frame has it. */
class Store {
  constructor() {
    this.ranks = [];
    this.culprits = new Set();
    this.waiting = new Set();
    this.operations = new Map(); // rank -> its operations by end
    this.count = 0;
    this.dropped = 0; // by this page, which keeps the latest
    this.leftOut = 0; // by the server, in frames
    this.missed = 0; // frames that the server has forgotten
    this.now = 0;
    this.job = "";
    this.size = 0;
    this.links = []; // to ranks of other hosts
    this.points = { step: [], rate: [], share: [], waits: [] };
  }

  take(frame) {
    const seconds = (frame.t - this.now) / 1e6, before = new Map(this.ranks.map((each) => [each.rank, each]));
    const perSecond = (now, then) => (then <= now && seconds > 0 ? (now - then) / seconds : 0);
    const sent = new Map(this.links.map((each) => [`${each.rank} ${each.peer}`, each.sent]));
    this.now = frame.t;
    this.job = frame.job;
    this.size = frame.size;
    this.culprits = new Set(frame.culprits);
    this.waiting = new Set(frame.waiting);
    this.leftOut += frame.left_out;
    this.links = frame.links.map(([bytes, rank, peer, trip, again]) => (
      { rank, peer, sent: bytes, rate: perSecond(bytes, sent.get(`${rank} ${peer}`)), trip, again }
    ));
    this.ranks = frame.ranks.map((each) => (
      { ...each, rate: perSecond(each.operations, before.get(each.rank)?.operations) }
    ));
    if (this.ranks.length > MANY_RANKS) { // those to blame are seen at once
      this.ranks.sort((one, other) => this.culprits.has(other.rank) - this.culprits.has(one.rank) || one.rank - other.rank);
    }
    for (const [rank, place, at, took, agreed, started, bytes, failed] of frame.operations) {
      if (!this.operations.has(rank)) this.operations.set(rank, []);
      this.operations.get(rank).push({ name: frame.names[place], at, took, agreed, started, bytes, failed });
      this.count += 1;
    }
    for (const rank of new Set(frame.operations.map((each) => each[0]))) {
      this.operations.get(rank).sort((one, other) => one.at - other.at);
    }
    this.forget();
    const total = this.summary();
    for (const [name, values] of Object.entries(this.points)) {
      values.push(total[name]);
      if (values.length > MOST_POINTS) values.shift();
    }
  }

  forget() {
    if (this.count <= MOST_OPERATIONS) return;
    for (const [rank, all] of this.operations) {
      const gone = Math.ceil(all.length / 4);
      this.operations.set(rank, all.slice(gone));
      this.count -= gone;
      this.dropped += gone;
    }
  }

  /** The operations of a rank that are visible; those that began long before are looked for a little further back. */
  between(rank, from, to) {
    const all = this.operations.get(rank) ?? [];
    let low = 0, high = all.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (all[middle].at < to) low = middle + 1; else high = middle;
    }
    const found = [];
    for (let place = low - 1; place >= 0 && (all[place].at >= from || low - place < 4000); place -= 1) {
      if (all[place].at + all[place].took >= from) found.push(all[place]);
    }
    return found;
  }

  summary() {
    const steps = this.ranks.map((each) => each.step_seconds).filter((each) => each !== null).sort((one, other) => one - other);
    const sum = (of) => this.ranks.reduce((total, each) => total + of(each), 0), count = Math.max(1, this.ranks.length);
    return {
      step: steps.length ? steps[steps.length >> 1] : 0,
      rate: sum((each) => each.operand_bytes_per_second),
      share: sum((each) => each.in_operations_ratio) / count,
      waits: sum((each) => each.waiting_ratio) / count,
      memory: sum((each) => each.resident_memory_bytes),
    };
  }

  /** A trace as `farandole timeline` writes it: an event a line. */
  trace() {
    const events = [];
    for (const { rank } of this.ranks) {
      events.push({ ph: "M", name: "process_name", pid: rank, tid: 0, args: { name: `rank ${rank} of run ${this.job}` } });
    }
    let id = 0;
    for (const [rank, all] of this.operations) {
      for (const each of all) {
        const cat = each.name.replace(/^unnamed /, "").split(" ")[0], same = { cat, id: id += 1, pid: rank, tid: 0 };
        const span = (name, from, to, more) => {
          events.push({ ph: "b", name, ts: from, ...same, ...more }, { ph: "e", name, ts: to, ...same });
        };
        const agreed = each.at + Math.max(0, each.agreed), started = each.started < 0 ? agreed : each.at + each.started;
        span(each.name, each.at, each.at + each.took, { args: { bytes: each.bytes, ...(each.failed ? { failed: true } : {}) } });
        if (each.agreed >= 0) span("NEGOTIATE", each.at, agreed);
        if (each.started >= 0) span("QUEUE", agreed, started);
        if (each.agreed >= 0) span(cat.toUpperCase(), started, each.at + each.took);
      }
    }
    return `[\n${events.map((each) => JSON.stringify(each)).join(",\n")}\n]\n`;
  }
}

class Page {
  constructor() {
    this.store = new Store();
    this.lanes = new Lanes(this.store);
    this.paused = false;
    this.rows = new Map();
    this.on("pause", () => this.pause());
    this.on("nearer", () => this.lanes.zoom(0.5));
    this.on("farther", () => this.lanes.zoom(2));
    this.on("follow", () => { if (this.paused) this.pause(); this.lanes.follow(); });
    this.on("save", () => this.save());
    addEventListener("keydown", (event) => this.onKey(event));
    this.poll();
  }

  on(id, act) { document.getElementById(id).addEventListener("click", act); }

  onKey(event) {
    const button = { " ": "pause", "+": "nearer", "-": "farther", 0: "follow", s: "save" }[event.key];
    if (!button || event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "BUTTON") return;
    event.preventDefault();
    document.getElementById(button).click();
  }

  /** Asks for the frames since the last one, again and again. */
  async poll() {
    for (let next = 0, over = false; !over;) {
      const news = await fetch(`frames?${next}`).then((answer) => answer.json()).catch(() => null);
      this.say(news ? "live" : "connection lost; trying again");
      if (news) {
        this.store.missed += news.missed;
        news.frames.forEach((frame) => this.take(frame));
        ({ next, over } = news);
      }
      await new Promise((resolve) => { setTimeout(resolve, POLL_MS); });
    }
    this.say("the job has ended");
    document.getElementById("diagnosis").dataset.kind = "over";
  }

  say(text) { document.getElementById("connection").textContent = text; }

  take(frame) {
    this.store.take(frame);
    document.getElementById("job").textContent = frame.job;
    document.getElementById("sentence").textContent = `${frame.sentence}.`;
    document.getElementById("diagnosis").dataset.kind = frame.kind;
    document.getElementById("diagnosis").classList.toggle("slow", frame.culprits.length > 0);
    document.title = frame.kind === "moves" ? "Farandole" : `! ${frame.kind} - Farandole`;
    if (!this.asked) this.asked = setTimeout(() => { this.asked = 0; this.show(); }, 50);
  }

  show() {
    const total = this.store.summary(), here = this.store.ranks.length;
    this.set("ranks", here === this.store.size ? `${here}` : `${here} of ${this.store.size}`);
    this.set("step", total.step ? duration(1e6 * total.step) : "–");
    this.set("rate", `${amount(total.rate)}/s`);
    this.set("share", percent(total.share));
    this.set("waits", percent(total.waits));
    this.set("memory", amount(total.memory));
    for (const [name, values] of Object.entries(this.store.points)) {
      plot(document.getElementById(`plot-${name}`), values, this.lanes.colours[name === "waits" ? "waits" : "data"]);
    }
    this.set("notes", this.notes());
    this.showRows();
    this.showLinks();
    if (!this.paused) this.lanes.draw();
  }

  set(id, text) {
    const element = document.getElementById(id);
    if (element.textContent !== text) element.textContent = text;
  }

  notes() {
    const { size, ranks, leftOut, missed, dropped } = this.store, notes = [];
    if (ranks.length < size) {
      notes.push(`${size - ranks.length} ranks are not on this host; run farandole live on theirs to see them.`);
    }
    if (leftOut) notes.push(`${leftOut.toLocaleString("en")} shorter operations are counted, not drawn.`);
    if (missed) notes.push(`${missed.toLocaleString("en")} frames came faster than this page took them.`);
    if (dropped) notes.push(`The oldest ${dropped.toLocaleString("en")} operations were forgotten.`);
    return notes.join(" ");
  }

  showRows() {
    const body = document.getElementById("rows");
    const present = new Set(this.store.ranks.map((each) => each.rank));
    for (const [rank, row] of this.rows) if (!present.has(rank)) { row.remove(); this.rows.delete(rank); }
    for (const each of this.store.ranks) {
      if (!this.rows.has(each.rank)) {
        const row = body.insertRow();
        row.dataset.rank = each.rank;
        for (let cell = 0; cell < 12; cell += 1) row.insertCell();
        this.rows.set(each.rank, row);
      }
      const row = this.rows.get(each.rank);
      row.className = this.store.culprits.has(each.rank) ? "culprit" : this.store.waiting.has(each.rank) ? "waiting" : "";
      cells(each, this.store.now).forEach((text, place) => {
        if (row.cells[place].textContent !== text) row.cells[place].textContent = text;
      });
    }
  }

  showLinks() {
    const { links } = this.store, body = document.getElementById("link-rows");
    document.getElementById("links").hidden = !links.length;
    while (body.rows.length > links.length) body.deleteRow(-1);
    links.forEach(({ rank, peer, rate, trip, again }, place) => {
      const row = body.rows[place] ?? body.insertRow();
      [`${rank}`, `${peer}`, `${amount(rate)}/s`, duration(trip), again.toLocaleString("en")].forEach((text, cell) => {
        const shown = row.cells[cell] ?? row.insertCell();
        if (shown.textContent !== text) shown.textContent = text;
      });
    });
  }

  pause() {
    this.paused = !this.paused;
    const button = document.getElementById("pause");
    button.setAttribute("aria-pressed", String(this.paused));
    button.textContent = this.paused ? "Go on" : "Pause";
    if (this.paused) this.lanes.end ??= this.store.now; else this.lanes.follow();
  }

  save() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([this.store.trace()], { type: "application/json" }));
    link.download = `farandole-${this.store.job}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}

function cells(rank, now) {
  const does = { gone: "has ended", stopped: "is stopped", computing: "computes", not_scheduled: "is not scheduled", on_storage: "waits for storage", sleeping: "sleeps", unknown: "" };
  const state = rank.state === "running" ? does[rank.activity] ?? "" : rank.state === "left" ? "has left" : "failed";
  return [
    `${rank.rank}`, `${rank.pid}`, state, rank.in, rank.in ? duration(Math.max(0, now - rank.since)) : "",
    rank.step_seconds === null ? "–" : duration(1e6 * rank.step_seconds), Math.round(rank.rate).toLocaleString("en"), `${amount(rank.operand_bytes_per_second)}/s`,
    percent(rank.in_operations_ratio), percent(rank.waiting_ratio), percent(rank.waited_for_ratio),
    amount(rank.resident_memory_bytes),
  ];
}

function percent(share) { return `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`; }

const page = new Page();
