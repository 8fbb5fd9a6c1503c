// Tool calls on the chat page. Each call is a block with the function's name, its arguments and its result. The page
// does not run functions. The user enters the result.
import {make} from '/dom.js';
import {highlight} from '/highlight.js';

// Parses the tools in the settings and returns them in OpenAI's form, or null if the text is empty. Throws Error with a
// message for people. Members that a request does not have (a `command`, as in the files of `ingot chat --tools`) are
// dropped.
export function readTools(text) {
  if (!text.trim()) return null;
  let given;
  try {
    given = JSON.parse(text);
  } catch (error) {
    throw new Error(`The tools are not JSON: ${error.message}`);
  }
  const good = Array.isArray(given) && given.every(tool => typeof tool?.function?.name === 'string');
  if (!good) throw new Error('The tools must be a JSON array of {"type": "function", "function": {"name": ...}}.');
  return given.length ? given.map(tool => ({type: 'function', function: tool.function})) : null;
}

// Adds the call deltas of a stream's event to the message.
export function addCalls(message, deltas) {
  for (const {index, id, function: part} of deltas) {
    message.tool_calls ??= [];
    const call = message.tool_calls[index] ??= {id, type: 'function', function: {name: '', arguments: ''}};
    call.function.name += part.name ?? '';
    call.function.arguments += part.arguments ?? '';
  }
}

// Checks the form of a list of calls, because imported conversations may contain anything.
const isCall = call => [call?.id, call?.function?.name, call?.function?.arguments].every(x => typeof x === 'string');
export const areCalls = calls => Array.isArray(calls) && calls.every(isCall);

const parsed = text => {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
};

// The calls in the form for a request. The arguments of a stopped call are not valid JSON, and many templates refuse
// them.
export const sentCalls = calls => calls.map(call => parsed(call.function.arguments) === undefined
  ? {...call, function: {...call.function, arguments: '{}'}} : call);

// Indents and colours JSON. Other text, such as incomplete arguments, is unchanged.
function pretty(text) {
  const value = parsed(text);
  return typeof value === 'object' && value !== null ? highlight(JSON.stringify(value, null, 2), 'json') : [text];
}

export class CallBlock {
  constructor(call, onResult) {
    this.call = call;
    this.name = make('code');
    this.args = make('pre');
    this.result = make('div', {class: 'result'});
    const label = text => make('span', {class: 'quiet'}, text);
    this.node = make('section', {class: 'call', 'aria-label': 'Tool call'},
      make('div', {class: 'call-head'}, label('Call'), this.name), this.args, this.result);
    const what = 'The result of this call';
    const area = make('textarea', {rows: '2', placeholder: what, 'aria-label': what});
    const hint = label('The model continues when each call has a result.');
    const submit = event => {
      event.preventDefault();
      onResult(area.value);
    };
    const row = make('div', {class: 'row'}, hint, make('button', {}, 'Send result'));
    this.form = make('form', {onsubmit: submit}, area, row);
    this.shown = make('pre');
    this.resultLabel = label('Result');
  }

  // result: a text or undefined. asks: whether the user may enter the result now.
  update(result, asks) {
    this.name.textContent = this.call.function.name;
    this.args.replaceChildren(...pretty(this.call.function.arguments));
    if (result !== undefined) {
      this.shown.replaceChildren(...pretty(result));
      this.result.replaceChildren(this.resultLabel, this.shown);
    } else if (!asks) {
      this.result.replaceChildren();
    } else if (!this.form.isConnected) {
      this.result.replaceChildren(this.form);
    }
  }
}
