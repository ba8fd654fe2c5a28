// The widgets of the page. Full precision is in the `value` of <data> and in `data-value` of cells.
"use strict";

(() => {
  const ITEMS = ["Mushrooms", "Basil", "Olives", "Onions", "Peppers", "Ham", "Artichokes", "Pineapple"];
  const START = { logits: [2, 1.2, 0.8, 0.3, 0, -0.5, -1, -2], k: 3 };
  const SEED = 7; // a reload, or Reset, repeats the draws
  const LIMIT = 6;
  const AXIS = 1.25; // the bars' axis ends beyond 1, for guesses that are no probabilities
  const n = ITEMS.length;

  const slot = (name) => document.querySelector(`[data-ks="${name}"]`);
  if (!slot("root") || slot("rows").hasChildNodes()) return;

  const state = { selected: 0 };
  let law; // of the state's logits and size
  let likeliest; // its first sets

  // ---- writing numbers ----

  const minus = (text) => text.replace("-", "−");
  const signed = (x, digits) => (x > 0 ? "+" : "") + minus(x.toFixed(digits));
  function probability(x, digits = 3) {
    const unit = 10 ** -digits;
    if (x > 0 && x < unit / 2) return `<${unit}`;
    if (x < 1 && x > 1 - unit / 2) return `>${(1 - unit).toFixed(digits)}`;
    return x.toFixed(digits);
  }
  function oneIn(x) {
    if (x > 0.995) return x === 1 ? "certain" : "nearly certain";
    return `1 in ${x > 0.1 ? (1 / x).toFixed(1) : Math.round(1 / x).toLocaleString("en")}`;
  }
  const places = (z) => [...z.keys()].filter((i) => z[i]);
  const names = (z) => places(z).map((i) => ITEMS[i]).join(", ") || "no toppings at all";

  function element(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }
  function show(node, value, text) {
    node.setAttribute("value", value);
    node.textContent = text;
  }

  // ---- things made once ----

  const rows = ITEMS.map((item, i) => {
    const slider = element("input", {
      type: "range", id: `ks-logit-${i}`, min: -LIMIT, max: LIMIT, step: 0.1,
    });
    const row = {
      slider,
      logit: element("span", { class: "ks-logit", "aria-hidden": "true" }),
      exact: element("i", { class: "ks-exact" }),
      naive: element("i", { class: "ks-naive" }),
      drawn: element("i", { class: "ks-dot" }),
      number: element("data", { class: "ks-number", "data-marginal": i }),
    };
    const unit = element("span", { class: "ks-hidden" }, " logit");
    const label = element("label", { for: slider.id }, item, unit);
    const bar = element("span", { class: "ks-bar", "aria-hidden": "true" });
    bar.append(row.exact, row.naive, row.drawn);
    slot("rows").append(element("div", { class: "ks-row" }, label, slider, row.logit, bar, row.number));
    slider.addEventListener("input", () => {
      state.logits[i] = Number(slider.value);
      state.selected = i;
      change();
    });
    slider.addEventListener("focus", () => select(i));
    return row;
  });

  const chips = ITEMS.map((item) => element("span", { class: "ks-chip" }, item));
  slot("chips").append(...chips);

  const tableRows = ITEMS.map((item) => {
    const cells = [1, 2, 3, 4].map(() => element("td"));
    slot("table").append(element("tr", {}, element("th", { scope: "row" }, item), ...cells));
    return cells;
  });

  const heat = ITEMS.map((item, i) => {
    slot("heat-head").append(
      element("th", { scope: "col" },
        element("span", { class: "ks-short", "aria-hidden": "true" }, item.slice(0, 3)),
        element("span", { class: "ks-full" }, item)),
    );
    const button = element("button", { type: "button" }, item);
    const cells = ITEMS.map(() => element("td"));
    const row = element("tr", {}, element("th", { scope: "row" }, button), ...cells);
    row.addEventListener("pointerenter", () => select(i));
    button.addEventListener("focus", () => select(i));
    button.addEventListener("click", () => {
      select(i);
      announce(slot("words").textContent);
    });
    slot("heat").append(row);
    return { row, button, cells };
  });

  const size = document.getElementById("ks-k");
  size.max = n;
  slot("n").textContent = n;

  // ---- what is shown ----

  function render() {
    const { logits, k, counts, draws, last } = state;
    const guess = ksubset.naive(logits, k);
    size.value = k;
    slot("k").textContent = k;
    rows.forEach((row, i) => {
      const exact = law.marginals[i];
      row.slider.value = logits[i];
      const spoken = `${minus(logits[i].toFixed(1))}, probability ${probability(exact)}`;
      row.slider.setAttribute("aria-valuetext", spoken);
      row.logit.textContent = signed(logits[i], 1);
      show(row.number, exact, probability(exact));
      row.exact.style.width = `${(100 * exact) / AXIS}%`;
      row.naive.style.left = `${(100 * Math.min(guess[i], AXIS)) / AXIS}%`;
      row.naive.classList.toggle("ks-beyond", guess[i] > AXIS);
      row.drawn.hidden = draws === 0;
      row.drawn.style.left = `${(100 * counts[i]) / Math.max(draws, 1) / AXIS}%`;
      const share = draws ? (counts[i] / draws).toFixed(3) : "–";
      const texts = [signed(logits[i], 1), probability(exact), guess[i].toFixed(3), share];
      tableRows[i].forEach((cell, j) => { cell.textContent = texts[j]; });
      chips[i].classList.toggle("ks-in", Boolean(last && last[i]));
    });
    slot("naive").textContent = aboutGuess(guess);
    renderFacts();
    renderDraws();
    renderSets();
    renderHeat();
  }

  function aboutGuess(guess) {
    const gaps = guess.map((x, i) => Math.abs(x - law.marginals[i]));
    const worst = gaps.indexOf(Math.max(...gaps));
    if (state.k === 1) return "With k = 1 the softmax is right: to choose one is what it is for.";
    if (gaps[worst] < 5e-4) return "Here k · softmax happens to be right.";
    const exact = `the exact value is ${probability(law.marginals[worst])}`;
    const wrong = guess[worst] > 1 ? "more than certain" : exact;
    return `k · softmax would give ${ITEMS[worst]} ${guess[worst].toFixed(2)}: ${wrong}.`;
  }

  function renderFacts() {
    const { k } = state;
    const total = law.marginals.reduce((a, b) => a + b, 0);
    const count = ksubset.binomial(n, k);
    const { entropy } = law;
    show(slot("total"), total, total.toFixed(3));
    show(slot("count"), count, count.toLocaleString("en"));
    slot("choose").textContent = `${n} choose ${k}`;
    show(slot("mode"), likeliest[0].probability, probability(likeliest[0].probability));
    slot("mode-names").textContent = names(likeliest[0].z);
    show(slot("entropy"), entropy, `${entropy.toFixed(3)} nats`);
    const bits = (entropy / Math.LN2).toFixed(3);
    const alike = Math.exp(entropy).toFixed(1);
    slot("entropy-words").textContent = `${bits} bits: as open as ${alike} equally likely sets`;
    show(slot("log-partition"), law.logPartition, minus(law.logPartition.toFixed(3)));
  }

  function renderDraws() {
    const { draws, last, counts } = state;
    slot("drawn").textContent = "No pizza drawn yet for these scores.";
    if (last) {
      const p = Math.exp(law.logProbability(last));
      const chance = `Its probability is ${probability(p, 4)} (${oneIn(p)}).`;
      slot("drawn").textContent = `Drawn: ${names(last)}. ${chance}`;
    }
    const gap = Math.max(...law.marginals.map((p, i) => Math.abs(p - counts[i] / draws)));
    slot("tally").textContent = draws
      ? `${draws.toLocaleString("en")} draws: every share is within ${gap.toFixed(3)} of the exact probability.`
      : "";
  }

  function renderSets() {
    const { sets, draws } = state;
    const top = likeliest[0].probability;
    slot("sets").replaceChildren(...likeliest.map(({ z, probability: p }, rank) =>
      element("tr", {},
        element("td", {}, String(rank + 1)),
        element("td", {}, names(z)),
        element("td", { "data-value": p },
          element("i", { class: "ks-share", style: `width: ${(100 * p) / top}%`, "aria-hidden": "true" }),
          element("span", {}, probability(p, 4))),
        element("td", {}, draws ? ((sets.get(z.join("")) ?? 0) / draws).toFixed(3) : "–"))));
    const covered = likeliest.reduce((total, { probability: p }) => total + p, 0);
    const count = ksubset.binomial(n, state.k);
    const all = count === 1 ? "This is the only set there is." : `These are all ${count} sets there are.`;
    slot("covered").textContent = count > likeliest.length
      ? `Together these ${likeliest.length} of ${count} sets have probability ${probability(covered)}.`
      : all;
  }

  function renderHeat() {
    heat.forEach(({ row, button, cells }, i) => {
      row.classList.toggle("ks-selected", i === state.selected);
      button.setAttribute("aria-pressed", i === state.selected);
      cells.forEach((cell, j) => {
        const c = law.covariance[i][j];
        cell.dataset.value = c;
        cell.className = c < 0 ? "ks-minus" : "ks-plus";
        // 1/4 is the largest there is; the root makes small ones visible, text stays readable
        cell.style.setProperty("--ks-heat", `${(45 * Math.sqrt(Math.abs(c) * 4)).toFixed(1)}%`);
        const small = c === 0 ? "0" : "≈0";
        cell.textContent = Math.abs(c) < 5e-4 ? small : signed(c, 3).replace("0.", ".");
      });
    });
    slot("words").replaceChildren(...aboutGradient(state.selected));
  }

  function aboutGradient(i) {
    const step = 0.1;
    const row = law.covariance[i];
    const others = [...row.keys()].filter((j) => j !== i).sort((a, b) => row[a] - row[b]);
    const bold = (text) => element("strong", {}, text);
    if (row[i] < 1e-6) {
      const settled = `it is all but certain to be ${law.marginals[i] > 0.5 ? "in" : "out"}`;
      const why = state.k % n === 0 ? "there is only one set to draw" : settled;
      return ["Raise the score of ", bold(ITEMS[i]), ` a little, and next to nothing happens: ${why}.`];
    }
    const raised = state.logits.map((x, j) => (j === i ? x + step : x));
    const gain = ksubset.law(raised, state.k).marginals[i] - law.marginals[i];
    const change = (j) => signed(row[j] * step, 4);
    const losers = others.slice(0, 2).map((j) => `${ITEMS[j]} (${change(j)})`).join(" and ");
    return [
      "Raise the score of ", bold(ITEMS[i]), ` by ${step}. Its own probability changes by about `,
      `${step} × ${row[i].toFixed(3)} = `, bold(change(i)), ` (exactly: ${signed(gain, 4)}). `,
      `All others together lose as much, most of all ${losers}.`,
    ];
  }

  // ---- what people do ----

  let timer;
  /** Tells screen readers, after a pause: a slider on the move would talk without end. */
  function announce(text, delay = 0) {
    clearTimeout(timer);
    timer = setTimeout(() => { slot("status").textContent = text; }, delay);
  }
  function summary() {
    const order = [...law.marginals.keys()].sort((a, b) => law.marginals[b] - law.marginals[a]);
    const best = order.slice(0, 3).map((i) => `${ITEMS[i]} ${probability(law.marginals[i])}`).join(", ");
    return `${state.k} of ${n} toppings. Most probable: ${best}. Entropy ${law.entropy.toFixed(2)} nats.`;
  }

  function select(i) {
    if (i === state.selected) return;
    state.selected = i;
    renderHeat();
  }

  /** New logits or a new size: another law, so old draws are void. */
  function change(delay = 1000) {
    Object.assign(state, { draws: 0, counts: ITEMS.map(() => 0), sets: new Map(), last: null });
    law = ksubset.law(state.logits, state.k);
    likeliest = ksubset.likeliest(law, 10);
    render();
    announce(summary(), delay);
  }
  function reset() {
    Object.assign(state, { logits: [...START.logits], k: START.k, uniform: ksubset.generator(SEED) });
    change(0);
  }
  function setAll(logit) {
    state.logits = ITEMS.map((_, i) => logit(i));
    change(0);
  }

  const click = (name, action) => slot(name).addEventListener("click", action);
  click("reset", reset);
  click("random", () => setAll(() => Math.round(80 * state.uniform() - 40) / 10));
  click("equal", () => setAll(() => 0));
  click("extreme", () => setAll((i) => (i < 2 ? LIMIT : -LIMIT)));
  click("draw", () => {
    state.last = law.sample(state.uniform);
    render();
    announce(slot("drawn").textContent);
  });
  click("draw-many", () => {
    for (let i = 0; i < 1000; i++) {
      const z = law.sample(state.uniform);
      const key = z.join("");
      places(z).forEach((j) => { state.counts[j]++; });
      state.sets.set(key, (state.sets.get(key) ?? 0) + 1);
      state.last = z;
    }
    state.draws += 1000;
    render();
    announce(slot("tally").textContent);
  });
  size.addEventListener("input", () => {
    state.k = Number(size.value);
    change();
  });

  reset();
  clearTimeout(timer); // nothing has happened yet that were worth telling
})();
