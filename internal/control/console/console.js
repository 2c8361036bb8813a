// The console reads the same API as everybody (docs: HTTP). No text from the API ever becomes markup: elements are
// built by h(), which sets text only.

const STATES = {
  MIRRORING: 'mirroring', LOG_TRUNCATION: 'preparing', EPOCH_FENCING: 'preparing', PAUSING: 'paused', PAUSED: 'paused',
  STOPPING: 'stopping', STOPPED: 'stopped', FAILED: 'failed', UNKNOWN: 'unknown',
};
const TABS = ['overview', 'partitions', 'groups', 'events', 'settings', 'failover'];
const ROW = 30; // height of a table row, as in the style sheet

const $ = (id) => document.getElementById(id);
const color = (state) => `var(--${STATES[state] || 'unknown'})`;
const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 });
const short = (n) => (n < 0 ? '–' : compact.format(n));
const num = (n) => (n < 0 ? '–' : whole.format(n));

function seconds(s) {
  if (s < 0) return '–';
  if (s < 1) return s === 0 ? '0 s' : `${Math.round(s * 1000)} ms`;
  if (s < 120) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
}

function h(tag, props = {}, ...children) {
  const el = tag === 'svg' || SVG.has(tag) ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [k, v] of Object.entries(props)) {
    if (v === undefined || v === false || v === null) continue;
    if (k.startsWith('on')) el.addEventListener(k.slice(2), v);
    else if (k === 'style') for (const [name, value] of Object.entries(v)) el.style.setProperty(name, value);
    else el.setAttribute(k, v === true ? '' : v);
  }
  el.append(...children.flat().filter((c) => c !== null && c !== undefined).map((c) => (c instanceof Node ? c : String(c))));
  return el;
}
const SVG = new Set(['path', 'line', 'text', 'rect', 'g']);

// --- API -------------------------------------------------------------------------------------------------------------

async function api(path, body) {
  const headers = {};
  const token = $('token').value;
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const response = await fetch(path, { method: body === undefined ? 'GET' : 'POST', headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const answer = await response.json();
  if (!response.ok && path !== '/readyz') throw new Error(answer.error || `HTTP ${response.status}`);
  return answer;
}
const of = (mirror, what) => `/api/v1/mirrors/${encodeURIComponent(mirror)}${what}`;

// --- What is shown ----------------------------------------------------------------------------------------------------

const view = { mirror: '', tab: 'overview', mirrors: null, refresh: null, filter: '', states: new Set(), sort: 'topic', descending: false };

function route() {
  const [, mirror = '', tab = 'overview'] = location.hash.split('/').map(decodeURIComponent);
  if (mirror !== view.mirror) Object.assign(view, { filter: '', states: new Set() });
  view.mirror = mirror;
  view.tab = TABS.includes(tab) ? tab : 'overview';
  showMirrors();
  showPanel();
}

function showStatus(ready) {
  $('instance').textContent = ready.instance ? `${ready.instance} · ${ready.version}` : '';
  const pills = [h('span', { class: `pill ${ready.ready ? 'good' : 'bad'}` }, ready.ready ? 'ready' : 'not ready')];
  if (ready.destination) {
    pills.push(h('span', { class: `pill ${ready.destination.up ? '' : 'bad'}`, title: ready.destination.error }, `destination ${ready.destination.up ? 'up' : 'unreachable'}`));
    for (const s of ready.sources || []) {
      if (!s.up) pills.push(h('span', { class: 'pill bad', title: s.error }, `source of ${s.mirror} unreachable`));
    }
    pills.push(h('span', { class: 'pill quiet' }, `${ready.shardsOwned} shards here`));
  }
  $('clusters').replaceChildren(...pills);
  problem(ready.ready || !ready.waitingFor ? '' : `Waiting for ${ready.waitingFor}`);
}

function problem(text) {
  $('problem').hidden = !text;
  $('problem').textContent = text;
}

const bar = (states, total) => h('div', { class: 'bar', role: 'img', 'aria-label': Object.entries(states).map(([s, n]) => `${n} ${s}`).join(', ') },
  Object.entries(states).map(([s, n]) => h('span', { style: { width: `${(100 * n) / total}%`, background: color(s) } })));

function showMirrors() {
  if (!view.mirrors) return; // not known yet
  const cards = view.mirrors.map((m) => h('a', { class: 'card', href: `#/${encodeURIComponent(m.mirror)}/${view.tab}`, 'aria-current': m.mirror === view.mirror ? 'page' : undefined },
    h('div', { class: 'row' }, h('b', {}, m.mirror), h('span', { class: 'quiet' }, `${num(m.partitions)} partitions`)),
    bar(m.states, m.partitions || 1),
    h('div', { class: 'row quiet' }, h('span', {}, `lag ${num(m.lag)} · ${seconds(m.lagSeconds)}`),
      m.states.FAILED ? h('span', { class: 'bad' }, `${num(m.states.FAILED)} failed`) : null),
    ...m.failures.map((f) => h('div', { class: 'finding' }, `${f.step}: ${f.message}`)),
    ...m.notes.map((n) => h('div', { class: 'quiet' }, n)),
    m.finding ? h('div', { class: 'finding' }, m.finding) : null));
  $('mirrors').replaceChildren(...(cards.length ? cards : [h('div', { class: 'box quiet' }, 'No mirrors yet. Declare one in the configuration file, or run mirrord create.')]));
  if (!view.mirror && view.mirrors.length) location.replace(`#/${encodeURIComponent(view.mirrors[0].mirror)}/overview`);
}

const PANELS = { overview, partitions, groups, events, settings, failover };

function showHeading() {
  const m = current();
  $('title').textContent = view.mirror;
  $('subtitle').textContent = m ? `from ${m.sourceBootstrap}${m.sourceClusterId ? ` (cluster ${m.sourceClusterId})` : ''}` : '';
}

function showPanel() {
  showHeading();
  $('tabs').replaceChildren(...(view.mirror ? TABS : []).map((t) => h('a', {
    role: 'tab', href: `#/${encodeURIComponent(view.mirror)}/${t}`, 'aria-selected': String(t === view.tab),
  }, t[0].toUpperCase() + t.slice(1))));
  $('panel').replaceChildren();
  view.refresh = view.mirror ? PANELS[view.tab]($('panel'), view.mirror) : null;
  tick();
}

const current = () => (view.mirrors || []).find((m) => m.mirror === view.mirror);

// --- Overview: figures and an hour of history ---------------------------------------------------------------------------

function overview(panel, mirror) {
  const figures = h('div', { class: 'figures' });
  const charts = h('div', { class: 'charts' });
  panel.append(figures, charts);
  return async () => {
    const samples = await api(of(mirror, '/history'));
    const m = current();
    if (m) {
      const figure = (name, value, bad) => h('div', { class: 'figure' }, h('span', {}, name), h('b', { class: bad ? 'bad' : undefined }, value));
      figures.replaceChildren(figure('Topics', num(m.topics)), figure('Partitions', num(m.partitions)),
        figure('Mirroring', num(m.states.MIRRORING || 0)), figure('Failed', num(m.states.FAILED || 0), m.states.FAILED),
        figure('Lag', `${num(m.lag)}`), figure('Furthest behind', seconds(m.lagSeconds)));
    }
    const rate = samples.slice(1).map((s, i) => ({ at: s.at, value: Math.max(0, (s.mirrored - samples[i].mirrored) / ((new Date(s.at) - new Date(samples[i].at)) / 1000)) }));
    charts.replaceChildren(
      chart('Lag, records', samples.map((s) => ({ at: s.at, value: s.lag })), num, short),
      chart('Furthest behind', samples.map((s) => ({ at: s.at, value: s.lagSeconds })), seconds),
      chart('Mirrored offsets per second', rate, num, short),
      stateChart(samples));
  };
}

const W = 560, H = 130, LEFT = 44, FOOT = 16;

function scales(points, top) {
  const from = new Date(points[0].at).getTime();
  const until = Math.max(new Date(points[points.length - 1].at).getTime(), from + 60000);
  return { x: (at) => LEFT + ((W - LEFT) * (new Date(at) - from)) / (until - from), y: (v) => 6 + (H - FOOT - 6) * (1 - v / top), from, until };
}

function frame(scale, top, format) {
  const clock = (t) => new Date(t).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
  return [0, 0.5, 1].map((f) => h('g', {}, h('line', { class: 'grid', x1: LEFT, x2: W, y1: scale.y(top * f), y2: scale.y(top * f) }),
    h('text', { class: 'axis', x: LEFT - 6, y: scale.y(top * f) + 4, 'text-anchor': 'end' }, format(top * f))))
    .concat(h('text', { class: 'axis', x: LEFT, y: H - 2 }, clock(scale.from)), h('text', { class: 'axis', x: W, y: H - 2, 'text-anchor': 'end' }, clock(scale.until)));
}

function chart(title, points, format, axis = format) {
  const box = h('div', { class: 'box chart' });
  const last = points.length ? points[points.length - 1].value : -1;
  box.append(h('h2', {}, title, h('span', { class: 'now' }, format(last))));
  if (points.length < 2) {
    box.append(h('div', { class: 'empty' }, 'Gathering…'));
    return box;
  }
  const top = nice(Math.max(...points.map((p) => p.value), 1));
  const s = scales(points, top);
  const line = points.map((p, i) => `${i ? 'L' : 'M'}${s.x(p.at).toFixed(1)} ${s.y(p.value).toFixed(1)}`).join('');
  box.append(h('svg', { viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': `${title}: now ${format(last)}, at most ${format(Math.max(...points.map((p) => p.value)))} in the last hour` },
    frame(s, top, axis), h('path', { class: 'area', d: `${line}L${s.x(points[points.length - 1].at)} ${s.y(0)}L${s.x(points[0].at)} ${s.y(0)}Z` }), h('path', { class: 'curve', d: line })));
  return box;
}

function nice(v) {
  const power = 10 ** Math.floor(Math.log10(v));
  return [1, 2, 5, 10].map((f) => f * power).find((c) => c >= v);
}

function stateChart(samples) {
  const box = h('div', { class: 'box chart' }, h('h2', {}, 'Partitions by state'));
  const names = Object.keys(STATES).filter((n) => samples.some((s) => s.states[n]));
  if (samples.length < 2 || !names.length) {
    box.append(h('div', { class: 'empty' }, 'Gathering…'));
    return box;
  }
  const top = nice(Math.max(...samples.map((s) => Object.values(s.states).reduce((a, b) => a + b, 0)), 1));
  const s = scales(samples, top);
  const below = samples.map(() => 0);
  const areas = names.map((name) => {
    const floor = [...below];
    samples.forEach((p, i) => { below[i] += p.states[name] || 0; });
    const up = samples.map((p, i) => `${i ? 'L' : 'M'}${s.x(p.at).toFixed(1)} ${s.y(below[i]).toFixed(1)}`).join('');
    const down = samples.map((p, i) => `L${s.x(p.at).toFixed(1)} ${s.y(floor[i]).toFixed(1)}`).reverse().join('');
    return h('path', { d: `${up}${down}Z`, style: { fill: color(name) } });
  });
  box.append(h('svg', { viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': 'Partitions by state over the last hour' }, frame(s, top, short), areas),
    h('div', { class: 'legend' }, names.map((n) => h('span', {}, h('span', { class: 'dot', style: { background: color(n) } }), `${n} ${num(samples[samples.length - 1].states[n] || 0)}`))));
  return box;
}

// --- Tables: only the rows in sight exist, so that thousands cost nothing --------------------------------------------------

function table(columns, widths) {
  const head = h('div', { class: 'thead', role: 'row', style: { 'grid-template-columns': widths } });
  const space = h('div', { class: 'space' });
  const scroll = h('div', { class: 'scroll', tabindex: '0', role: 'table' }, space);
  const empty = h('div', { class: 'empty', hidden: true }, 'Nothing to show.');
  let rows = [];
  const draw = () => {
    const first = Math.max(0, Math.floor(scroll.scrollTop / ROW) - 5);
    const last = Math.min(rows.length, first + Math.ceil((scroll.clientHeight || 640) / ROW) + 10);
    space.style.setProperty('height', `${rows.length * ROW}px`);
    const inSight = [];
    for (let i = first; i < last; i += 1) {
      inSight.push(h('div', { class: `trow ${rows[i].state === 'FAILED' || rows[i].status === 'failed' ? 'failed' : ''}`, role: 'row', style: { top: `${i * ROW}px`, 'grid-template-columns': widths } },
        columns.map((c) => { const v = c.cell(rows[i]); return h('span', { class: c.num ? 'num' : undefined, role: 'cell', title: v instanceof Node ? undefined : v }, v); })));
    }
    space.replaceChildren(...inSight);
  };
  scroll.addEventListener('scroll', () => requestAnimationFrame(draw));
  const sorter = (c) => h('button', { class: c.num ? 'num' : undefined, onclick: () => { view.descending = view.sort === c.key ? !view.descending : Boolean(c.num); view.sort = c.key; again(); } },
    c.name + (view.sort === c.key ? (view.descending ? ' ▾' : ' ▴') : ''));
  let again = () => {};
  return {
    el: h('div', { class: 'table' }, head, scroll, empty),
    show(all, redo) {
      again = redo;
      head.replaceChildren(...columns.map((c) => (c.key ? sorter(c) : h('span', { class: c.num ? 'num' : undefined }, c.name))));
      rows = all;
      if (columns.some((c) => c.key === view.sort)) {
        const k = view.sort;
        rows = [...all].sort((a, b) => (a[k] < b[k] ? -1 : a[k] > b[k] ? 1 : a.partition - b.partition) * (view.descending ? -1 : 1));
      }
      empty.hidden = rows.length > 0;
      scroll.hidden = rows.length === 0;
      draw();
    },
  };
}

const stateCell = (name) => h('span', { class: 'state' }, h('span', { class: 'dot', style: { background: color(name) } }), name);

function searchBox(onchange) {
  return h('input', { type: 'search', placeholder: 'Filter', 'aria-label': 'Filter', value: view.filter, oninput: (e) => { view.filter = e.target.value.toLowerCase(); onchange(); } });
}

function partitions(panel, mirror) {
  view.sort = 'topic';
  view.descending = false;
  let all = [];
  const t = table([
    { name: 'Topic', key: 'topic', cell: (r) => r.topic },
    { name: 'Partition', num: true, cell: (r) => (r.partition < 0 ? '–' : r.partition) },
    { name: 'State', key: 'state', cell: (r) => stateCell(r.state) },
    { name: 'Source', num: true, cell: (r) => num(r.sourceOffset) },
    { name: 'Destination', num: true, cell: (r) => num(r.destinationOffset) },
    { name: 'Lag', num: true, key: 'lag', cell: (r) => num(r.lag) },
    { name: 'Behind', num: true, key: 'lagSeconds', cell: (r) => seconds(r.lagSeconds) },
    { name: 'Message', cell: (r) => r.errorMessage },
    { name: 'Owner', cell: (r) => r.owner },
  ], 'minmax(120px,2fr) 66px 136px 96px 96px 80px 64px minmax(100px,3fr) minmax(80px,1fr)');
  const chips = h('span', { class: 'tools' });
  const count = h('span', { class: 'quiet' });
  const show = () => {
    const names = Object.keys(STATES).filter((n) => all.some((r) => r.state === n));
    chips.replaceChildren(...names.map((n) => h('button', { class: 'chip', 'aria-pressed': String(view.states.has(n)), onclick: () => { if (!view.states.delete(n)) view.states.add(n); show(); } },
      stateCell(n), ` ${num(all.filter((r) => r.state === n).length)}`)));
    const rows = all.filter((r) => (!view.states.size || view.states.has(r.state)) && (!view.filter || `${r.topic}-${r.partition} ${r.errorMessage} ${r.owner}`.toLowerCase().includes(view.filter)));
    count.textContent = `${num(rows.length)} of ${num(all.length)}`;
    t.show(rows, show);
  };
  panel.append(h('div', { class: 'tools' }, searchBox(show), chips, count), t.el);
  return async () => { all = await api(of(mirror, '/partitions')); show(); };
}

function groups(panel, mirror) {
  view.sort = 'group';
  view.descending = false;
  let all = [];
  const t = table([
    { name: 'Group', key: 'group', cell: (r) => r.group },
    { name: 'Type', cell: (r) => r.type },
    { name: 'Topic', key: 'topic', cell: (r) => r.topic },
    { name: 'Partition', num: true, cell: (r) => r.partition },
    { name: 'Source', num: true, cell: (r) => num(r.sourceOffset) },
    { name: 'Destination', num: true, cell: (r) => num(r.destinationOffset) },
    { name: 'Status', key: 'status', cell: (r) => r.status },
    { name: 'Reason', cell: (r) => r.reason },
  ], 'minmax(120px,2fr) 80px minmax(100px,2fr) 70px 110px 110px 90px minmax(100px,2fr)');
  const show = () => t.show(all.filter((r) => !view.filter || `${r.group} ${r.topic} ${r.status} ${r.reason}`.toLowerCase().includes(view.filter)), show);
  panel.append(h('div', { class: 'tools' }, searchBox(show)), t.el);
  return async () => { all = await api(of(mirror, '/groups')); show(); };
}

function events(panel, mirror) {
  view.sort = '';
  let all = [];
  const t = table([
    { name: 'Time', cell: (r) => new Date(r.at).toLocaleTimeString() },
    { name: 'Topic', cell: (r) => (r.topic ? (r.partition >= 0 ? `${r.topic}-${r.partition}` : r.topic) : '(mirror)') },
    { name: 'Event', cell: (r) => r.event },
    { name: 'From', cell: (r) => r.from || '' },
    { name: 'To', cell: (r) => (r.to ? stateCell(r.to) : '') },
    { name: 'Message', cell: (r) => r.message || '' },
  ], '90px minmax(120px,1fr) 130px 140px 150px minmax(120px,3fr)');
  const show = () => t.show(all.filter((r) => !view.filter || JSON.stringify(r).toLowerCase().includes(view.filter)), show);
  panel.append(h('div', { class: 'tools' }, searchBox(show), h('span', { class: 'quiet' }, 'Newest first, as this instance saw them since it started.')), t.el);
  return async () => { all = await api(of(mirror, '/events?limit=2000')); show(); };
}

function settings(panel, mirror) {
  const list = h('dl', { class: 'settings' });
  panel.append(h('div', { class: 'box' }, list));
  return async () => {
    const d = await api(of(mirror, ''));
    const lines = {
      'Source': `${d.sourceBootstrap} ${d.security || 'PLAINTEXT'}`, 'Cluster id': d.sourceClusterId || 'not known yet', 'Coordinator': d.owner || 'none now',
      'Defined by': d.declared ? 'configuration file' : 'command', 'Topics included': (d.topicsInclude || []).join(', ') || 'only by command', 'Topics excluded': (d.topicsExclude || []).join(', ') || 'none',
      'Groups included': (d.groupsInclude || []).join(', ') || 'none', 'Groups excluded': (d.groupsExclude || []).join(', ') || 'none',
      'Transactions': mode(d.transactions, d.transactionsMode), 'Fillers': mode(d.fillers, d.fillersMode), 'Epoch fencing': d.epochFencing, 'Read only': d.readOnly,
      'On lost range': d.onLostRange, 'Throttle': d.throttle ? `${num(d.throttle)} bytes/s` : 'none',
      'Topics waiting': d.topicList.filter((t) => t.message || t.finding).map((t) => `${t.topic}: ${t.finding || t.message}`).join('; ') || 'none',
    };
    list.replaceChildren(...Object.entries(lines).flatMap(([k, v]) => [h('dt', {}, k), h('dd', {}, v)]));
  };
}

const mode = (wish, decided) => (wish === 'auto' ? `auto${decided ? `, decided: ${decided}` : ''}` : wish);

// --- Failover: look first, then act ----------------------------------------------------------------------------------------

function failover(panel, mirror) {
  const topics = h('input', { type: 'text', value: '.*', 'aria-label': 'Topics' });
  const drain = h('input', { type: 'checkbox' });
  const confirm = h('input', { type: 'text', placeholder: mirror, 'aria-label': 'Mirror name', oninput: () => { act.disabled = confirm.value !== mirror; } });
  const act = h('button', { class: 'danger', disabled: true, onclick: () => run(false) }, 'Stop and promote');
  const result = h('div', { class: 'result', role: 'status' });
  const say = (kind, ...parts) => result.replaceChildren(h('div', { class: kind }, ...parts));
  const body = (dryRun) => ({ verb: 'stop', mirror, topics: topics.value.split(',').map((t) => t.trim()).filter(Boolean), drain: drain.checked, dryRun });
  async function run(dryRun) {
    try {
      const answer = await api('/api/v1/commands', body(dryRun));
      if (dryRun) say('', describeDryRun(answer)); else await follow(answer.id);
    } catch (err) { say('bad', err.message); }
  }
  async function follow(id) {
    act.disabled = true;
    const pending = await api('/api/v1/commands', body(true)).catch(() => ({ partitions: [] }));
    const mine = new Set(pending.partitions.map((p) => `${p.topic}-${p.partition}`));
    for (let tries = 0; tries < 600 && view.tab === 'failover' && view.mirror === mirror; tries += 1) {
      const [outcome, rows] = await Promise.all([api(`/api/v1/commands/${id}`), api(of(mirror, '/partitions'))]);
      const done = rows.filter((r) => mine.has(`${r.topic}-${r.partition}`) && r.state === 'STOPPED').length;
      const refused = (outcome.topics || []).filter((t) => t.refused);
      say('', h('progress', { max: Math.max(1, mine.size), value: done }), `${num(done)} of ${num(mine.size)} partitions STOPPED`,
        outcome.message ? h('div', { class: outcome.refused ? 'bad' : '' }, outcome.message) : null,
        refused.map((t) => h('div', { class: 'bad' }, `${t.topic}: ${t.message}`)));
      if (outcome.done && (outcome.refused || done === mine.size || refused.length)) return;
      await new Promise((wake) => { setTimeout(wake, 1000); });
    }
  }
  panel.append(h('div', { class: 'box failover' },
    h('div', {}, 'Stopping makes mirror topics writable on the destination. It needs no source. Records that were not copied yet are left behind; the dry run says how many.'),
    h('div', { class: 'tools' }, h('label', {}, 'Topics (names or patterns, comma-separated) ', topics)),
    h('div', { class: 'tools' }, h('label', {}, drain, ' Drain: planned switch-over, wait for zero lag first (source alive)')),
    h('div', { class: 'tools' }, h('button', { onclick: () => run(true) }, 'Dry run'), h('label', {}, 'Type the mirror’s name to confirm ', confirm), act),
    result));
  return null;
}

function describeDryRun(answer) {
  const states = {};
  for (const p of answer.partitions) states[p.state] = (states[p.state] || 0) + 1;
  const running = answer.partitions.length - (states.STOPPED || 0);
  return h('div', {},
    h('div', {}, `${num(running)} partitions would be stopped${states.STOPPED ? `, ${num(states.STOPPED)} are STOPPED already` : ''}.`),
    h('div', { class: answer.lag > 0 || answer.unknown ? 'warn' : 'good' }, answer.lag > 0 ? `${num(answer.lag)} records would be left behind, the oldest ${seconds(answer.lagSeconds)} old.` : answer.unknown ? '' : 'Nothing would be left behind by what is known now.'),
    answer.unknown ? h('div', { class: 'warn' }, `Of ${num(answer.unknown)} partitions the lag is not known.`) : null,
    h('div', { class: 'quiet' }, Object.entries(states).map(([s, n]) => `${n} ${s}`).join(' · ')));
}

// --- The clock -------------------------------------------------------------------------------------------------------------

let busy = false;
let unreachable = false;

async function tick() {
  if (busy || document.hidden) return;
  busy = true;
  try {
    showStatus(await api('/readyz'));
    const mirrors = await api('/api/v1/mirrors');
    const first = !view.mirrors;
    view.mirrors = mirrors;
    showMirrors();
    if (first) showHeading();
    if (view.refresh) await view.refresh();
    unreachable = false;
  } catch (err) {
    if (!unreachable || $('problem').hidden) problem(err instanceof TypeError ? 'This instance does not answer.' : err.message);
    unreachable = true;
  } finally { busy = false; }
}

$('token').value = sessionStorage.getItem('token') || '';
$('token').addEventListener('change', () => { sessionStorage.setItem('token', $('token').value); tick(); });
$('tokenform').addEventListener('submit', (e) => { e.preventDefault(); tick(); });
addEventListener('hashchange', route);
document.addEventListener('visibilitychange', tick);
setInterval(tick, 3000);
route();
