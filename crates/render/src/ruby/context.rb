# What BOSH gives a template: `spec`, `properties`, `p`, `if_p`, `link`, `if_link`, and a few methods of ActiveSupport.
unless defined?(OpenStruct)
  # Newer Rubies have it as a gem only.
  class OpenStruct
    def initialize(members = {})
      @table = {}
      members.each { |name, value| self[name] = value }
    end

    def [](name)
      @table[name.to_sym]
    end

    def []=(name, value)
      name = name.to_sym
      define_singleton_method(name) { @table[name] } unless @table.key?(name)
      @table[name] = value
    end

    def to_h
      @table.dup
    end
    alias marshal_dump to_h

    def each_pair(&block)
      @table.each_pair(&block)
      self
    end

    def dig(name, *names)
      @table.dig(name.to_sym, *names)
    end

    def ==(other)
      other.is_a?(OpenStruct) && to_h == other.to_h
    end

    def respond_to_missing?(name, all = false)
      @table.key?(name.to_s.delete_suffix('=').to_sym) || super
    end

    def method_missing(name, *values)
      return self[name.to_s.delete_suffix('=')] = values.fetch(0) if name.end_with?('=')

      values.empty? ? nil : super
    end
  end
end

module Bosh
  module Template
    class UnknownProperty < StandardError
      attr_reader :name

      def initialize(name)
        @name = name
        super("Can't find property '#{name}'")
      end
    end

    class UnknownLink < StandardError
      attr_reader :name

      def initialize(name)
        @name = name
        super("Can't find link '#{name}'")
      end
    end

    # The methods of a spec's part are its members, for an old idiom.
    class BackCompatOpenStruct < OpenStruct
      def methods(regular = true)
        regular ? super : to_h.keys
      end
    end

    module PropertyHelper
      def p(*args)
        names = Array(args[0])
        names.each do |name|
          found = lookup_property(own_properties, name)
          return found unless found.nil?
        end
        return args[1] if args.length == 2

        raise UnknownProperty, names
      end

      def if_p(*names)
        values = names.map do |name|
          value = lookup_property(own_properties, name)
          return ActiveElseBlock.new(self) if value.nil?

          value
        end
        yield(*values)
        InactiveElseBlock.new
      end

      private

      def lookup_property(within, name)
        return nil if within.nil?

        name.split('.').each do |key|
          within = within[key]
          return nil if within.nil?
        end
        within
      end
    end

    class InactiveElseBlock
      def else; end

      def else_if_p(*)
        self
      end

      def else_if_link(_)
        self
      end
    end

    class ActiveElseBlock
      def initialize(context)
        @context = context
      end

      def else
        yield
      end

      def else_if_p(*names, &block)
        @context.if_p(*names, &block)
      end

      def else_if_link(name, &block)
        @context.if_link(name, &block)
      end
    end

    class EvaluationLinkInstance
      include PropertyHelper
      attr_reader :name, :index, :id, :az, :address, :properties, :bootstrap

      def initialize(spec)
        %w[name index id az address properties bootstrap].each { |key| instance_variable_set("@#{key}", spec[key]) }
      end

      private

      def own_properties
        @properties
      end
    end

    class EvaluationLink
      include PropertyHelper
      STATUS = { 'default' => 0, 'unhealthy' => 1, 'healthy' => 3, 'all' => 4 }.freeze
      attr_reader :instances, :properties

      def initialize(spec)
        @spec = spec
        @instances = spec['instances'].map { |instance| EvaluationLinkInstance.new(instance) }
        @properties = spec['properties']
      end

      def address(criteria = {})
        return @spec['address'] if @spec.key?('address')

        status = STATUS[criteria.fetch(:status, 'default').to_s]
        short = @spec['use_link_dns_names'] || @spec['use_short_dns_addresses']
        numbers = @spec['dns_numbers']
        azs = criteria[:azs] || []
        if status.nil? || criteria.keys != criteria.keys & %i[status azs] || (numbers.nil? && (short || !azs.empty?))
          raise "the address of this link is not known with #{criteria}"
        end

        parts = azs.map { |az| "a#{numbers['azs'][az] || raise("Unknown AZ: '#{az}'")}" } << "s#{status}"
        parts << "n#{numbers['networks'][@spec['default_network']]}" if short
        "q-#{parts.sort.join}.#{short ? "q-g#{numbers['group']}" : long_group}.#{@spec['domain']}"
      end

      private

      def long_group
        names = @spec.values_at('instance_group', 'default_network', 'deployment_name')
        names.map { |name| name.downcase.tr('_', '-').gsub(/[^a-z0-9-]/, '') }.join('.')
      end

      def own_properties
        @properties
      end
    end

    class EvaluationContext
      include PropertyHelper

      # A class of its own for each job of each instance: what its templates define is gone with it.
      def self.fresh
        Class.new(self) { class_eval 'def get_binding; binding; end', '-e', 1 }
      end

      # `dumped` is the spec; each template gets one of its own to change.
      def initialize(dumped)
        @dumped = dumped
      end

      def spec
        @spec ||= structs(raw_spec, BackCompatOpenStruct)
      end

      def properties
        @properties ||= structs(raw_properties, OpenStruct)
      end

      def raw_properties
        @raw_properties ||= raw_spec['properties'] || {}
      end

      def name
        raw_spec['name']
      end

      def index
        raw_spec['index']
      end

      def link(name)
        found = lookup_property(raw_spec['links'], name)
        raise UnknownLink, name if found.nil? || !found.key?('instances')

        EvaluationLink.new(found)
      end

      def if_link(name)
        found = lookup_property(raw_spec['links'], name)
        return ActiveElseBlock.new(self) if found.nil? || !found.key?('instances')

        yield EvaluationLink.new(found)
        InactiveElseBlock.new
      end

      # Errors show it: without addresses in memory, which differ each time.
      def inspect
        '#<Bosh::Template::EvaluationContext>'
      end

      private

      def raw_spec
        @raw_spec ||= Marshal.load(@dumped)
      end

      alias own_properties raw_properties
      private :own_properties

      def structs(value, kind)
        case value
        when Hash then kind.new(value.transform_values { |member| structs(member, kind) })
        when Array then value.map { |item| structs(item, kind) }
        else value
        end
      end
    end
  end
end

class Object
  def blank?
    respond_to?(:empty?) ? !!empty? : !self
  end

  def present?
    !blank?
  end

  def presence
    self if present?
  end

  def to_openstruct
    self
  end
end

class String
  def blank?
    match?(/\A[[:space:]]*\z/)
  end
end

class Numeric
  def blank?
    false
  end
end

class Array
  def to_openstruct
    map(&:to_openstruct)
  end
end

class Hash
  def recursive_merge(other)
    merge(other) { |_, mine, theirs| mine.is_a?(Hash) && theirs.is_a?(Hash) ? mine.recursive_merge(theirs) : theirs }
  end

  def to_openstruct
    OpenStruct.new(transform_values(&:to_openstruct))
  end
end

unless defined?(Base64)
  # Newer Rubies have it as a gem only.
  module Base64
    module_function

    def encode64(bytes)
      [bytes].pack('m')
    end

    def decode64(text)
      text.unpack1('m')
    end

    def strict_encode64(bytes)
      [bytes].pack('m0')
    end

    def strict_decode64(text)
      text.unpack1('m0')
    end

    def urlsafe_encode64(bytes, padding: true)
      text = strict_encode64(bytes).tr('+/', '-_')
      padding ? text : text.delete('=')
    end

    def urlsafe_decode64(text)
      text = text.ljust((text.length + 3) / 4 * 4, '=') unless text.end_with?('=')
      strict_decode64(text.tr('-_', '+/'))
    end
  end
end

# JSON before 2.8 puts line feeds into empty arrays and maps; the one that BOSH has does not.
module LaidOutJson
  def pretty_generate(value, *)
    laid_out(value, '')
  end

  def laid_out(value, indent)
    inner = "#{indent}  "
    case value
    when Hash
      return '{}' if value.empty?

      "{\n#{value.map { |k, v| "#{inner}#{JSON.generate(k.to_s)}: #{laid_out(v, inner)}" }.join(",\n")}\n#{indent}}"
    when Array
      return '[]' if value.empty?

      "[\n#{value.map { |v| inner + laid_out(v, inner) }.join(",\n")}\n#{indent}]"
    else JSON.generate(value)
    end
  end
end
JSON.singleton_class.prepend(LaidOutJson) if (JSON::VERSION.split('.').map(&:to_i) <=> [2, 8]) < 0
