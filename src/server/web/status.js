// The status page: reads /metrics once a second and plots the last five minutes. Gauges appear with the first answer,
// and rates with the second, which is requested soon after.
import * as api from '/api.js';
import {settings} from '/settings_store.js';

const $ = id => document.getElementById(id);
const KEPT = 300, PERIOD_MS = 1000, SECOND_MS = 200, SVG = 'http://www.w3.org/2000/svg';
const samples = [];  // {at, sums: {name: value}, buckets: {name: Map(le -> count)}}

// Parses Prometheus text. Sums over all labels but `le`, and drops the prefix.
export function parse(text) {
  const sums = {}, buckets = {};
  for (const line of text.split('\n')) {
    const match = /^ingot:(\w+)\{([^}]*)\} (\S+)$/.exec(line);
    if (!match) continue;
    const [, name, labels, number] = match;
    const le = /le="([^"]+)"/.exec(labels);
    if (le) {
      const bound = le[1] === '+Inf' ? Infinity : Number(le[1]);
      const of = buckets[name.replace(/_bucket$/, '')] ??= new Map();
      of.set(bound, (of.get(bound) ?? 0) + Number(number));
    } else {
      sums[name] = (sums[name] ?? 0) + Number(number);
    }
  }
  return {at: performance.now() / 1000, sums, buckets};
}

const rate = (name, a, b) => Math.max(0, ((b.sums[name] ?? 0) - (a.sums[name] ?? 0)) / Math.max(.001, b.at - a.at));

// A percentile of the observations between two samples; null without observations.
export function percentile(name, share, a, b) {
  const before = a.buckets[name] ?? new Map(), after = b.buckets[name] ?? new Map();
  const bounds = [...after.keys()].sort((x, y) => x - y);
  const counts = bounds.map(bound => after.get(bound) - (before.get(bound) ?? 0));
  const total = counts[counts.length - 1] ?? 0;
  if (total <= 0) return null;
  const i = counts.findIndex(count => count >= share * total);
  const low = i > 0 ? bounds[i - 1] : 0, under = i > 0 ? counts[i - 1] : 0;
  if (bounds[i] === Infinity) return low;
  return low + (bounds[i] - low) * (share * total - under) / Math.max(1, counts[i] - under);
}

const NOTHING = {sums: {}, buckets: {}};
// A percentile of the window, or since the server's start if the window has no observations.
const latency = (name, share) => (a, b) => percentile(name, share, a, b) ?? percentile(name, share, NOTHING, b);

const number = (value, digits = 0) => value == null ? '–' : value.toLocaleString('en', {maximumFractionDigits: digits, minimumFractionDigits: 0});
const ms = value => value == null ? '–' : number(value * 1000, value < .1 ? 1 : 0) + ' ms';
const share = value => number(value * 100, 1) + ' %';

// Each series is a function of a sample and of the sample a few seconds before.
const PLOTS = [
  {title: 'Tokens a second', format: v => number(v, 1), series: [
    ['computed', (a, b) => rate('iteration_tokens_total_sum', a, b)],
    ['generated', (a, b) => rate('generation_tokens_total', a, b)]]},
  {title: 'Sequences', format: v => number(v), series: [
    ['running', (a, b) => b.sums.num_requests_running ?? 0], ['waiting', (a, b) => b.sums.num_requests_waiting ?? 0]]},
  {title: 'KV cache in use', format: share, most: 1, series: [['used', (a, b) => b.sums.kv_cache_usage_perc ?? 0]]},
  {title: 'Time to first token', format: ms, span: 15, series: [
    ['p50', latency('time_to_first_token_seconds', .5)], ['p90', latency('time_to_first_token_seconds', .9)],
    ['p99', latency('time_to_first_token_seconds', .99)]]},
  {title: 'Time between tokens', format: ms, span: 15, series: [
    ['p50', latency('inter_token_latency_seconds', .5)], ['p90', latency('inter_token_latency_seconds', .9)],
    ['p99', latency('inter_token_latency_seconds', .99)]]},
  {title: 'Requests a second', format: v => number(v, 2), span: 10, series: [
    ['ended', (a, b) => rate('request_success_total', a, b)], ['refused', (a, b) => rate('requests_rejected_total', a, b)]]},
];

function node(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const before = (i, span) => samples[Math.max(0, i - span)];

function drawPlot(plot) {
  const W = plot.svg.clientWidth || 600, H = 170, LEFT = 4, BOTTOM = 150, TOP = 16, shown = Math.max(60, samples.length);
  plot.svg.setAttribute('viewBox', `0 0 ${W} ${H}`);
  const lines = plot.series.map(([, f]) => samples.map((sample, i) => f(before(i, plot.span ?? 3), sample)));
  const most = plot.most ?? Math.max(1e-9, ...lines.flat().filter(v => v != null));
  const x = i => W - (samples.length - 1 - i) * (W - LEFT) / (shown - 1), y = v => BOTTOM - (BOTTOM - TOP) * v / most;
  plot.svg.replaceChildren(
    node('line', {x1: LEFT, x2: W, y1: BOTTOM, y2: BOTTOM, class: 'axis'}), node('line', {x1: LEFT, x2: W, y1: TOP, y2: TOP, class: 'axis'}),
    node('text', {x: LEFT, y: TOP - 3}, most > 1e-9 ? plot.format(most) : ''), node('text', {x: LEFT, y: H - 6}, `${Math.round(shown)} s ago`),
    node('text', {x: W, y: H - 6, 'text-anchor': 'end'}, 'now'));
  lines.forEach((values, k) => {
    let path = '', pen = false;
    values.forEach((v, i) => {
      if (v != null) path += `${pen ? 'L' : 'M'}${x(i).toFixed(1)} ${y(v).toFixed(1)}${pen ? '' : 'h0'}`;  // one sample is a dot
      pen = v != null;
    });
    plot.svg.append(node('path', {d: path, class: `s${k + 1}`}));
    plot.values[k].textContent = plot.format(values[values.length - 1] ?? (plot.format === ms ? null : 0));
  });
}

function makePlot(plot) {
  const box = document.createElement('article');
  box.className = 'plot';
  const title = document.createElement('h2');
  title.textContent = plot.title;
  plot.svg = node('svg', {role: 'img', 'aria-label': plot.title});
  const key = document.createElement('div');
  key.className = 'key';
  plot.values = plot.series.map(([name], k) => {
    const entry = document.createElement('span'), mark = document.createElement('i'), value = document.createElement('b');
    mark.className = `k${k + 1}`;
    entry.append(mark, name + ' ', value);
    key.append(entry);
    return value;
  });
  box.append(title, plot.svg, key);
  $('plots').append(box);
}

// Figures of speculation since the server's start; empty if no step verified a guess.
export function guesses(sums) {
  const {spec_decode_num_draft_tokens_total: all, spec_decode_num_accepted_tokens_total: right} = sums;
  if (!all) return [];
  const gain = sums.spec_decode_plain_seconds_total / sums.spec_decode_step_seconds_total;
  const tiles = [[share(right / all), 'of draft tokens accepted']];
  return gain > 0 ? [...tiles, [`${number(gain, 2)} ×`, 'speedup from speculation']] : tiles;
}

function drawTiles() {
  const last = samples[samples.length - 1], back = before(samples.length - 1, 5), {sums} = last;
  const hits = sums.prefix_cache_queries_total ? sums.prefix_cache_hits_total / sums.prefix_cache_queries_total : 0;
  const tiles = [
    [number(rate('iteration_tokens_total_sum', back, last), 1), 'tokens a second'], [number(sums.num_requests_running), 'running'],
    [number(sums.num_requests_waiting), 'waiting'], [share(sums.kv_cache_usage_perc ?? 0), 'of the KV cache used'],
    [share(hits), 'of prompt tokens cached'], ...guesses(sums),
    [number(sums.generation_tokens_total), 'tokens generated'],
  ];
  $('tiles').replaceChildren(...tiles.map(([value, name]) => {
    const tile = document.createElement('div'), b = document.createElement('b'), label = document.createElement('span');
    tile.className = 'tile';
    b.textContent = value;
    label.textContent = name;
    label.className = 'quiet';
    tile.append(b, label);
    return tile;
  }));
}

async function look() {
  let state = 'ready';
  try {
    samples.push(parse(await api.metrics()));
    if (samples.length > KEPT) samples.shift();
    drawTiles();
    PLOTS.forEach(drawPlot);
    if (!$('models').textContent) $('models').textContent = (await api.models()).map(m => m.id).join(', ');
  } catch (error) {
    state = error instanceof api.ServerError ? error.message : 'no answer';
  }
  $('state').textContent = state;
  $('dot').classList.toggle('on', state === 'ready');
  setTimeout(look, samples.length === 1 ? SECOND_MS : PERIOD_MS);
}

const theme = settings.values.theme;
if (theme !== 'auto') document.documentElement.dataset.theme = theme;
PLOTS.forEach(makePlot);
look();
