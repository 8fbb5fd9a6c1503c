// LaTeX names of characters, for math.js.

// Makes a map from "name character name character ...".
const pairs = text => {
  const words = text.trim().split(/\s+/), map = new Map();
  for (let i = 0; i < words.length; i += 2) map.set(words[i], words[i + 1]);
  return map;
};

export const LETTERS = pairs(`
  alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ lambda λ mu μ nu ν xi ξ omicron ο
  pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω
  Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω
  infty ∞ partial ∂ nabla ∇ hbar ℏ ell ℓ Re ℜ Im ℑ aleph ℵ emptyset ∅ varnothing ∅ imath ı jmath ȷ degree ° angle ∠ triangle △ square □
  blacksquare ■ top ⊤ bot ⊥ forall ∀ exists ∃ nexists ∄ ldots … dots … cdots ⋯ vdots ⋮ ddots ⋱ prime ′ checkmark ✓ star ⋆ dagger † ddagger ‡
  clubsuit ♣ diamondsuit ♢ heartsuit ♡ spadesuit ♠ S § P ¶ copyright © pounds £`);

export const OPERATORS = pairs(`
  times × div ÷ cdot ⋅ pm ± mp ∓ ast ∗ circ ∘ bullet ∙ oplus ⊕ ominus ⊖ otimes ⊗ odot ⊙ wedge ∧ land ∧ vee ∨ lor ∨ neg ¬ lnot ¬ cap ∩ cup ∪
  setminus ∖ leq ≤ le ≤ geq ≥ ge ≥ neq ≠ ne ≠ approx ≈ equiv ≡ sim ∼ simeq ≃ cong ≅ propto ∝ ll ≪ gg ≫ prec ≺ succ ≻ mid ∣ nmid ∤ parallel ∥
  perp ⊥ in ∈ notin ∉ ni ∋ subset ⊂ supset ⊃ subseteq ⊆ supseteq ⊇ subsetneq ⊊ supsetneq ⊋ to → rightarrow → leftarrow ← gets ←
  leftrightarrow ↔ Rightarrow ⇒ Leftarrow ⇐ Leftrightarrow ⇔ implies ⟹ iff ⟺ longrightarrow ⟶ longleftarrow ⟵ Longrightarrow ⟹ mapsto ↦
  uparrow ↑ downarrow ↓ updownarrow ↕ hookrightarrow ↪ rightharpoonup ⇀ nearrow ↗ searrow ↘ therefore ∴ because ∵ models ⊨ vdash ⊢
  lesssim ≲ gtrsim ≳ doteq ≐ asymp ≍ bowtie ⋈ triangleq ≜ coloneqq ≔ colon : lt < gt > bmod mod
  langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉ lvert | rvert | vert | lVert ‖ rVert ‖ Vert ‖ | ‖ { { } } lbrace { rbrace } lbrack [
  rbrack ] backslash \\ % % $ $ # # & & _ _`);

// In displayed formulas, the limits of these operators are above and below.
export const LARGE = pairs(`
  sum ∑ prod ∏ coprod ∐ bigcup ⋃ bigcap ⋂ bigoplus ⨁ bigotimes ⨂ bigvee ⋁ bigwedge ⋀`);
export const INTEGRALS = pairs('int ∫ iint ∬ iiint ∭ oint ∮');

const words = text => new Set(text.split(' '));
export const LIMITS = words('lim limsup liminf max min sup inf argmax argmin det gcd Pr');
export const FUNCTIONS = words(
  'sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth log ln lg exp deg dim ker hom arg mod');

export const ACCENTS = pairs('hat ^ widehat ^ bar ¯ vec → overrightarrow → dot ˙ ddot ¨ tilde ~ widetilde ~ check ˇ breve ˘ ' +
                             'overbrace ⏞');
export const UNDER_ACCENTS = pairs('underbrace ⏟');

// Spaces in em.
export const SPACES = new Map(Object.entries({',': .17, ':': .22, '>': .22, ';': .28, '!': 0, ' ': .25, '~': .25, quad: 1, qquad: 2}));
